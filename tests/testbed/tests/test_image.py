"""Image archives: the same bytes for the same content, and what they hold."""

import hashlib
import json
import os
import tarfile
import tempfile
import unittest
from pathlib import Path, PurePosixPath

from context import errors, image, images


class Archives(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)

    def tearDown(self):
        self._folder.cleanup()

    def layer(self, name: str, content: bytes) -> image.Layer:
        return image.write_layer(self.folder / name, [image.File("bin/program", content, 0o755)])

    def test_same_content_gives_same_bytes(self):
        archives = []
        for turn in ("one", "two"):
            layer = self.layer(f"{turn}-layer.tar", b"program")
            target = self.folder / f"{turn}.tar"
            image.write_archive(target, [image.Image(["a:1"], [layer], entrypoint=["/bin/program"], user="1:1")])
            archives.append(target.read_bytes())
        self.assertEqual(*archives)

    def test_a_shared_layer_is_written_once(self):
        base, extra = self.layer("base.tar", b"base"), self.layer("extra.tar", b"extra")
        target = self.folder / "images.tar"
        image.write_archive(target, [image.Image(["a:1"], [base]), image.Image(["a:2"], [base, extra])])
        with tarfile.open(target) as tar:
            layers = [name for name in tar.getnames() if name.endswith("layer.tar")]
            manifest = json.load(tar.extractfile("manifest.json"))
        self.assertEqual(len(layers), 2)
        self.assertEqual([len(entry["Layers"]) for entry in manifest], [1, 2])
        self.assertEqual(image.archive_names(target), ["a:1", "a:2"])

    def test_the_digest_is_the_layers_content(self):
        layer = self.layer("layer.tar", b"program")
        self.assertEqual(layer.digest, hashlib.sha256(layer.path.read_bytes()).hexdigest())
        config = json.loads(image.Image(["a:1"], [layer]).config())
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{layer.digest}"])

    def test_a_folder_is_copied_without_times_and_without_what_is_left_out(self):
        root = self.folder / "root"
        (root / "usr/share/doc/x").mkdir(parents=True)
        (root / "usr/share/doc/x/copyright").write_text("long")
        (root / "usr/program").write_text("short")
        os.symlink("program", root / "usr/link")
        layers = []
        for turn in ("one", "two"):
            os.utime(root / "usr/program", (hash(turn) % 1000, 5))
            layers.append(image.write_layer(self.folder / f"{turn}.tar", [], root,
                                            lambda path: path != PurePosixPath("usr/share/doc")))
        self.assertEqual(layers[0].digest, layers[1].digest)
        with tarfile.open(layers[0].path) as tar:
            self.assertEqual(tar.getnames(), ["usr", "usr/link", "usr/program", "usr/share"])
            self.assertEqual(tar.getmember("usr/link").linkname, "program")


class MysqlImage(unittest.TestCase):
    def test_what_stays(self):
        for path in ("usr/sbin/mysqld", "usr/bin/mysql", "usr/bin/mysqldump", "usr/bin/mysqlbinlog", "usr/bin/mysqladmin",
                     "usr/bin/mysql_tzinfo_to_sql", "usr/share/zoneinfo/Europe/Berlin", "usr/bin/bash", "usr/bin/sh",
                     "etc/ssl/certs/ca-certificates.crt", "usr/lib/mysql/plugin/semisync_source.so",
                     "usr/lib/mysql/plugin/mysql_clone.so", "usr/lib/mysql/plugin/component_mysqlbackup.so",
                     "usr/share/mysql/charsets/Index.xml", "tmp", "proc"):
            with self.subTest(path):
                self.assertTrue(images.keep_in_mysql_image(PurePosixPath(path)))

    def test_what_goes(self):
        for path in ("usr/share/doc", "usr/share/locale", "usr/bin/perl", "usr/bin/apt-get", "var/lib/dpkg/status",
                     "proc/1", "etc/passwd", "usr/lib/x86_64-linux-gnu/perl-base"):
            with self.subTest(path):
                self.assertFalse(images.keep_in_mysql_image(PurePosixPath(path)))


class OperatorImage(unittest.TestCase):
    def test_names(self):
        self.assertEqual(images.full_name("mainstay:dev"), "docker.io/library/mainstay:dev")
        self.assertEqual(images.full_name("team/mainstay:dev"), "docker.io/team/mainstay:dev")
        self.assertEqual(images.full_name("registry.example/mainstay:dev"), "registry.example/mainstay:dev")

    def test_mistakes_are_explained(self):
        with self.assertRaisesRegex(errors.TestbedError, "NAME:TAG"):
            images.build_operator(Path("/bin/true"), "mainstay")
        with self.assertRaisesRegex(errors.TestbedError, "build it first"):
            images.build_operator(Path("/nonexistent"), "mainstay:dev")


if __name__ == "__main__":
    unittest.main()
