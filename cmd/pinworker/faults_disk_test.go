package main

import (
	"os"
	"testing"
)

// disk is where the brokers keep their data: a file system in memory that can be made full, or a folder
// where this user, or this system, may not mount one.
type disk struct {
	folder    string
	unmounted error // why it is only a folder
}

const diskSize = 1 << 30 // bytes

func mountDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{folder: t.TempDir()}
	d.unmounted = os.NewSyscallError("mount a file system of its own", mountMemory(d.folder, diskSize))
	if d.unmounted == nil {
		t.Cleanup(func() {
			if err := unmount(d.folder); err != nil {
				t.Error(os.NewSyscallError("unmount", err))
			}
		})
	}
	return d
}

// fill leaves no room, empty takes it back.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	used, err := usedOf(d.folder)
	if err != nil {
		t.Fatal(os.NewSyscallError("statfs", err))
	}
	d.resize(t, used)
}

func (d *disk) empty(t *testing.T) { t.Helper(); d.resize(t, diskSize) }

func (d *disk) resize(t *testing.T, bytes int64) {
	t.Helper()
	if err := resizeMemory(d.folder, bytes); err != nil {
		t.Fatal(os.NewSyscallError("remount", err))
	}
}
