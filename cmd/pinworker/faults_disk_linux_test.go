package main

import (
	"fmt"
	"syscall"
)

func mountMemory(folder string, bytes int64) error {
	return syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
}

func resizeMemory(folder string, bytes int64) error {
	return syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes))
}

func unmount(folder string) error { return syscall.Unmount(folder, syscall.MNT_DETACH) }

func usedOf(folder string) (bytes int64, err error) {
	var stat syscall.Statfs_t
	err = syscall.Statfs(folder, &stat)
	return int64(stat.Blocks-stat.Bfree) * stat.Bsize, err
}
