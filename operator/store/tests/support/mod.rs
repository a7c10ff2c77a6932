//! A real S3 server for tests: versitygw on a directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use mainstay_store::{Identity, Keys, S3, Settings};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// What the gateway's owner is called.
pub(crate) const ACCESS_KEY: &str = "owner";
pub(crate) const SECRET_KEY: &str = "the-owners-secret";
pub(crate) const BUCKET: &str = "backups";

/// A running gateway; it ends, and its files go, when it is dropped.
pub(crate) struct Gateway {
    pub(crate) port: u16,
    files: TempDir,
    binary: PathBuf,
    tls: bool,
    _process: Child,
}

/// The program: `MAINSTAY_TEST_S3`, or the one that the testbed built.
fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("MAINSTAY_TEST_S3") {
        return given.into();
    }
    let cache = std::env::var_os("MAINSTAY_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/mainstay"),
        PathBuf::from,
    );
    let built = std::fs::read_dir(cache.join("bin")).into_iter().flatten().flatten();
    let mut built: Vec<PathBuf> = built
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("versitygw-"))
        })
        .collect();
    built.sort();
    built.pop().unwrap_or_else(|| {
        panic!(
            "there is no versitygw in {}: start the testbed once (tests/testbed/testbed up), or set MAINSTAY_TEST_S3 to \
             the program",
            cache.join("bin").display()
        )
    })
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[], false).await
    }

    /// With TLS, and a certificate for 127.0.0.1.
    pub(crate) async fn start_tls(certificate: &Path, key: &Path) -> Self {
        let arguments = ["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
        Self::start_with(&arguments, true).await
    }

    async fn start_with(arguments: &[&str], tls: bool) -> Self {
        let files = TempDir::new().unwrap();
        for name in ["data", "iam"] {
            std::fs::create_dir(files.path().join(name)).unwrap();
        }
        let port = free_port();
        let binary = binary();
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        let process = Command::new(&binary)
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "--iam-dir"])
            .arg(files.path().join("iam"))
            .args(arguments)
            .arg("posix")
            .arg(files.path().join("data"))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let gateway = Self {
            port,
            files,
            binary,
            tls,
            _process: process,
        };
        gateway.wait().await;
        if !tls {
            gateway.client().create_bucket().bucket(BUCKET).send().await.unwrap();
        }
        gateway
    }

    async fn wait(&self) {
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.files.path().join("log")).unwrap_or_default();
        panic!("versitygw did not listen within 10 s: {log}");
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.tls { "https" } else { "http" }, self.port)
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            endpoint: Some(self.endpoint()),
            region: "us-east-1".to_owned(),
            bucket: BUCKET.to_owned(),
            prefix: "mainstay".to_owned(),
            path_style: true,
            ca: None,
            identity: keys(ACCESS_KEY, SECRET_KEY),
        }
    }

    pub(crate) async fn store(&self) -> S3 {
        S3::new(self.settings()).await.unwrap()
    }

    /// A client that can do what the port cannot.
    pub(crate) fn client(&self) -> Client {
        let config = aws_sdk_s3::config::Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(self.endpoint())
            .force_path_style(true)
            .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "test"))
            .build();
        Client::from_conf(config)
    }

    /// The file that an object of the store is.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.files.path().join("data").join(BUCKET).join("mainstay").join(key)
    }

    /// Files of parts that belong to no object.
    pub(crate) fn parts(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 })
                .sum()
        }
        count(&self.files.path().join("data").join(BUCKET).join(".sgwtmp"))
    }

    /// A user that owns nothing.
    pub(crate) async fn add_user(&self, access: &str, secret: &str) {
        let output = Command::new(&self.binary)
            .args([
                "admin",
                "--access",
                ACCESS_KEY,
                "--secret",
                SECRET_KEY,
                "--endpoint-url",
                &self.endpoint(),
            ])
            .args(["create-user", "--access", access, "--secret", secret, "--role", "user"])
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

pub(crate) fn keys(access: &str, secret: &str) -> Identity {
    Identity::Keys(Keys {
        access_key: access.to_owned(),
        secret_key: secret.to_owned().into(),
        session_token: None,
    })
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Content that does not compress, the same for the same seed.
pub(crate) struct Noise {
    state: u64,
    left: u64,
}

impl Noise {
    pub(crate) fn new(seed: u64, bytes: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            left: bytes,
        }
    }

    pub(crate) fn bytes(seed: u64, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        Self::new(seed, bytes as u64).fill(&mut content);
        content
    }

    /// Fills a buffer, and says how much of it.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> usize {
        // Whole words, so that the same bytes come whatever the size of the buffers; only the end may be odd.
        let whole = buffer.len() - buffer.len() % 8;
        let taken = usize::try_from(self.left)
            .unwrap()
            .min(if whole == 0 { buffer.len() } else { whole });
        for word in buffer[..taken].chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            word.copy_from_slice(&self.state.to_le_bytes()[..word.len()]);
        }
        self.left -= taken as u64;
        taken
    }
}

impl tokio::io::AsyncRead for Noise {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let mut piece = [0; 16 * 1024];
        let room = buffer.remaining().min(piece.len());
        let taken = self.get_mut().fill(&mut piece[..room]);
        buffer.put_slice(&piece[..taken]);
        std::task::Poll::Ready(Ok(()))
    }
}
