package main

import (
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
	if d.unmounted = syscall.Mount("tmpfs", d.folder, "tmpfs", 0, diskSize); d.unmounted == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(d.folder, syscall.MNT_DETACH); err != nil {
				t.Error(os.NewSyscallError("unmount", err))
			}
		})
	}
	return d
}

const diskSize = "size=1g"
