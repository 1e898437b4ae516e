package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// disk is where the brokers keep their data: a file system in memory that can be made full, or a folder
// where this user may not mount one.
type disk struct {
	folder    string
	unmounted error // why it is only a folder
}

func mountDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{folder: t.TempDir()}
	d.unmounted = os.NewSyscallError("mount a file system of its own", syscall.Mount("tmpfs", d.folder, "tmpfs", 0, sized(diskSize)))
	if d.unmounted == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(d.folder, syscall.MNT_DETACH); err != nil {
				t.Error(os.NewSyscallError("unmount", err))
			}
		})
	}
	return d
}

const diskSize = 1 << 30 // bytes

func sized(bytes int64) string { return fmt.Sprintf("size=%d", bytes) }

// resize gives the disk another size, down to what is used: then it is full.
func (d *disk) resize(t *testing.T, bytes int64) {
	t.Helper()
	if err := syscall.Mount("tmpfs", d.folder, "tmpfs", syscall.MS_REMOUNT, sized(bytes)); err != nil {
		t.Fatal(os.NewSyscallError("remount", err))
	}
}

func (d *disk) used(t *testing.T) int64 {
	t.Helper()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(d.folder, &stat); err != nil {
		t.Fatal(os.NewSyscallError("statfs", err))
	}
	return int64(stat.Blocks-stat.Bfree) * stat.Bsize
}
