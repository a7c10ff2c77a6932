package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	mebibyte = int64(1) << 20
	// logBytes is added to what was asked for, so that the file system's own size is what was asked for.
	logBytes = 64 * mebibyte
	// smallest is what mkfs.xfs accepts.
	smallest     = 300 * mebibyte
	mountOptions = "loop,noatime"
)

var (
	errNodeOff = errors.New("the node is powered off")
	errBusy    = errors.New("the volume is still in use")
)

// storage makes, grows and removes volumes of nodes: NODES/<node>/volumes/<volume>.img, mounted on .../<volume>.
type storage struct{ nodes string }

func (s storage) image(node, volume string) string { return s.path(node, volume) + ".img" }

func (s storage) path(node, volume string) string {
	return filepath.Join(s.nodes, node, "volumes", volume)
}

// create makes the volume and mounts it inside the node; it can be repeated.
func (s storage) create(node, volume string, size int64) error {
	if size < smallest {
		return fmt.Errorf("%d MiB is too small: XFS needs at least %d MiB", size/mebibyte, smallest/mebibyte)
	}
	init, err := s.running(node)
	if err != nil {
		return err
	}
	image := s.image(node, volume)
	if _, err := os.Stat(image); errors.Is(err, os.ErrNotExist) {
		if err := format(image, size+logBytes); err != nil {
			return err
		}
	}
	return mountImage(image, inside(init))
}

// format makes the file under another name first: a volume without a file system is never seen.
func format(image string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		return fmt.Errorf("failed to make the folder of the volumes: %w", err)
	}
	partial := image + ".new"
	if err := os.WriteFile(partial, nil, 0o600); err != nil {
		return fmt.Errorf("failed to make the file of the volume: %w", err)
	}
	if err := os.Truncate(partial, size); err != nil {
		return fmt.Errorf("failed to size the file of the volume: %w", err)
	}
	if err := run(nil, "mkfs.xfs", "-q", "-f", "-K", "-l", fmt.Sprintf("size=%d", logBytes), partial); err != nil {
		return err
	}
	return os.Rename(partial, image)
}

// mountImage mounts a volume on the folder beside it, if it is not yet; `enter` is the way into the node.
func mountImage(image string, enter []string) error {
	folder := strings.TrimSuffix(image, ".img")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("failed to make the mount point: %w", err)
	}
	if run(enter, "mountpoint", "-q", folder) == nil {
		return nil
	}
	return run(enter, "mount", "-t", "xfs", "-o", mountOptions, image, folder)
}

// mountAll mounts every volume in a folder; the caller is inside the node already.
func mountAll(folder string) error {
	images, err := filepath.Glob(filepath.Join(folder, "*.img"))
	if err != nil {
		return err
	}
	var problems []error
	for _, image := range images {
		problems = append(problems, mountImage(image, nil))
	}
	return errors.Join(problems...)
}

// grow enlarges a mounted volume; it never shrinks one.
func (s storage) grow(node, volume string, size int64) error {
	init, err := s.running(node)
	if err != nil {
		return err
	}
	image := s.image(node, volume)
	now, err := os.Stat(image)
	if err != nil {
		return fmt.Errorf("failed to find the file of the volume: %w", err)
	}
	if now.Size() < size+logBytes {
		if err := os.Truncate(image, size+logBytes); err != nil {
			return fmt.Errorf("failed to enlarge the file of the volume: %w", err)
		}
	}
	devices, err := exec.Command("losetup", "--noheadings", "--output", "NAME", "--associated", image).Output()
	if err != nil {
		return fmt.Errorf("failed to find the loop device of %s: %w", volume, err)
	}
	for _, device := range strings.Fields(string(devices)) {
		if err := run(nil, "losetup", "--set-capacity", device); err != nil {
			return err
		}
	}
	return run(inside(init), "xfs_growfs", "-d", s.path(node, volume))
}

// remove deletes a volume; a node that is off needs no unmounting.
func (s storage) remove(node, volume string) error {
	path := s.path(node, volume)
	if init, err := s.running(node); err == nil && run(inside(init), "mountpoint", "-q", path) == nil {
		if err := run(inside(init), "umount", path); err != nil {
			return fmt.Errorf("%w: %w", errBusy, err)
		}
	}
	for _, gone := range []string{s.image(node, volume), path} {
		if err := os.Remove(gone); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("failed to delete the volume: %w", err)
		}
	}
	return nil
}

// running returns the process id of the node's init, from the record that the testbed keeps: "PID START-TIME".
func (s storage) running(node string) (int, error) {
	record, err := os.ReadFile(filepath.Join(s.nodes, node, "init.pid"))
	if err != nil {
		return 0, errNodeOff
	}
	fields := strings.Fields(string(record))
	if len(fields) != 2 {
		return 0, errNodeOff
	}
	stat, err := os.ReadFile(filepath.Join("/proc", fields[0], "stat"))
	if err != nil {
		return 0, errNodeOff
	}
	// The start time is field 22; the second field, the name, may hold spaces and ends with the last parenthesis.
	rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(rest) < 20 || rest[19] != fields[1] || rest[0] == "Z" {
		return 0, errNodeOff
	}
	return strconv.Atoi(fields[0])
}

// inside is the way into a node. Its processes too, since the XFS tools look into /proc/self.
func inside(init int) []string {
	return []string{"nsenter", "--target", strconv.Itoa(init), "--mount", "--pid", "--"}
}

func run(enter []string, args ...string) error {
	argv := append(append([]string{}, enter...), args...)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
