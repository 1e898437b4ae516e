//go:build !linux

package main

import "errors"

func mountMemory(string, int64) error { return errors.ErrUnsupported }

func resizeMemory(string, int64) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func usedOf(string) (int64, error) { return 0, errors.ErrUnsupported }
