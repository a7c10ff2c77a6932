//! The passwords that are mounted into the pod.
//!
//! A value that is missing, empty or unusable is reported and ignored: what worked before goes on working, so no edit of
//! a Secret locks anybody out (case F11).

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use mainstay_mysql::accounts::{Credentials, MAX_REPLICATION_PASSWORD};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::config::Paths;

/// A password is a secret that may be longer than what is worth hiding in a log line.
const SHORTEST_REDACTED: usize = 4;

/// What is mounted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// Mainstay's own accounts.
    pub(crate) credentials: Credentials,
    /// `root@'%'`
    pub(crate) root: Option<SecretString>,
    /// The application's user; absent also when no application is declared.
    pub(crate) application: Option<SecretString>,
    /// What is wrong, for a person; names files, never values.
    pub(crate) problems: Vec<String>,
}

impl Secrets {
    /// Reads all files. Blocking, but the files lie in memory.
    #[must_use]
    pub(crate) fn read(paths: &Paths) -> Self {
        let mut problems = Vec::new();
        let mut system = |name: &'static str| value(&paths.system_secret.join(name), true, &mut problems);
        let mut credentials = Credentials {
            manager: system("manager"),
            replication: system("replication"),
            clone: system("clone"),
            monitor: system("monitor"),
        };
        if credentials
            .replication
            .as_ref()
            .is_some_and(|text| text.expose_secret().len() > MAX_REPLICATION_PASSWORD)
        {
            credentials.replication = None;
            problems.push(format!(
                "the password in system/replication is ignored: MySQL allows {MAX_REPLICATION_PASSWORD} bytes for it"
            ));
        }
        let root = value(&paths.root_secret.join("password"), true, &mut problems);
        let application = value(&paths.app_secret.join("password"), false, &mut problems);
        Self {
            credentials,
            root,
            application,
            problems,
        }
    }

    /// Of a server that is thrown away: a password that nobody else knows, for the account with which its program logs in.
    pub(crate) fn throw_away() -> Self {
        let password = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Self {
            credentials: Credentials {
                manager: Some(SecretString::from(password)),
                ..Credentials::default()
            },
            ..Self::default()
        }
    }

    /// Two equal fingerprints: the same passwords.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for password in self.all() {
            let bytes = password.map_or(&[][..], |text| text.expose_secret().as_bytes());
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        }
        hash.finalize().into()
    }

    fn all(&self) -> [Option<&SecretString>; 6] {
        let own = &self.credentials;
        [
            &own.manager,
            &own.replication,
            &own.clone,
            &own.monitor,
            &self.root,
            &self.application,
        ]
        .map(Option::as_ref)
    }
}

/// A password file. One line break at its end is not part of the password: it got there by `echo`.
fn value(path: &Path, wanted: bool, problems: &mut Vec<String>) -> Option<SecretString> {
    let name = || {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let secret = path
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy();
        format!("{secret}/{file}")
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !wanted => return None,
        Err(error) => {
            problems.push(format!(
                "the password in {} is ignored: it cannot be read: {error}",
                name()
            ));
            return None;
        }
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(_not_text) => {
            problems.push(format!("the password in {} is ignored: it is not UTF-8", name()));
            return None;
        }
    };
    let password = text
        .strip_suffix('\n')
        .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if password.is_empty() || password.contains('\0') {
        let what = if password.is_empty() { "empty" } else { "not text" };
        problems.push(format!("the password in {} is ignored: it is {what}", name()));
        return None;
    }
    Some(SecretString::from(password.to_owned()))
}

/// Takes passwords out of text that is about to be shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor {
    secrets: Arc<RwLock<Vec<SecretString>>>,
}

impl Redactor {
    /// Learns the passwords; those of before stay known, they may still be seen.
    pub(crate) fn learn(&self, secrets: &Secrets) {
        let mut known = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        for password in secrets.all().into_iter().flatten() {
            let text = password.expose_secret();
            if text.len() >= SHORTEST_REDACTED && known.iter().all(|other| other.expose_secret() != text) {
                known.push(password.clone());
            }
        }
    }

    /// The text without them.
    #[must_use]
    pub(crate) fn redact(&self, text: &str) -> String {
        let known = self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose_secret(), "***")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(dir: &Path) -> Paths {
        let at = |name: &str| {
            let path = dir.join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        Paths {
            volume: at("volume"),
            run: at("run"),
            config_file: dir.join("my.cnf"),
            system_secret: at("system"),
            root_secret: at("root"),
            app_secret: at("app"),
            server_tls: at("tls"),
            client_ca: at("ca"),
            recovery: at("recovery"),
            store: at("store"),
        }
    }

    fn fill(paths: &Paths) {
        for name in mainstay_core::layout::SYSTEM_ACCOUNTS {
            std::fs::write(paths.system_secret.join(name), format!("pw of {name}\n")).unwrap();
        }
        std::fs::write(paths.root_secret.join("password"), "r00t").unwrap();
    }

    fn shown(password: Option<&SecretString>) -> &str {
        password.map_or("", |text| text.expose_secret())
    }

    #[test]
    fn f11_one_line_break_at_the_end_is_no_part_of_a_password() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        fill(&paths);
        for (file, password) in [
            ("a", "a"),
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            (" a ", " a "),
            ("'\"\\$", "'\"\\$"),
        ] {
            std::fs::write(paths.system_secret.join("manager"), file).unwrap();
            let secrets = Secrets::read(&paths);
            assert_eq!(shown(secrets.credentials.manager.as_ref()), password);
            assert!(secrets.problems.is_empty());
        }
    }

    #[test]
    fn f11_what_cannot_be_used_is_ignored_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        fill(&paths);
        std::fs::write(paths.system_secret.join("manager"), "\n").unwrap();
        std::fs::write(paths.system_secret.join("monitor"), [0xff, 0xfe]).unwrap();
        std::fs::write(paths.system_secret.join("replication"), "x".repeat(33)).unwrap();
        std::fs::remove_file(paths.root_secret.join("password")).unwrap();
        let secrets = Secrets::read(&paths);
        assert!(secrets.credentials.manager.is_none() && secrets.root.is_none());
        assert_eq!(shown(secrets.credentials.clone.as_ref()), "pw of clone");
        for name in [
            "system/manager",
            "system/monitor",
            "system/replication",
            "root/password",
        ] {
            assert!(
                secrets.problems.iter().any(|problem| problem.contains(name)),
                "{name}: {:?}",
                secrets.problems
            );
        }
        assert!(!secrets.problems.iter().any(|problem| problem.contains("app/")));
    }

    #[test]
    fn a_fingerprint_tells_passwords_apart() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        fill(&paths);
        let before = Secrets::read(&paths).fingerprint();
        assert_eq!(Secrets::read(&paths).fingerprint(), before);
        std::fs::write(paths.root_secret.join("password"), "other").unwrap();
        assert_ne!(Secrets::read(&paths).fingerprint(), before);
    }

    #[test]
    fn f31_passwords_are_taken_out_of_log_lines() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        fill(&paths);
        let redactor = Redactor::default();
        redactor.learn(&Secrets::read(&paths));
        assert_eq!(redactor.redact("near 'pw of clone' and r00t"), "near '***' and ***");
    }
}
