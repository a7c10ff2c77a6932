//! Versions of the server, and what differs between them.

use std::fmt;
use std::str::FromStr;

/// Version of a MySQL server, for example `9.7.4` or `8.0.40-my-build`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
    text: String,
}

/// A text that is not the version of a MySQL server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the version of the server in {0:?}")]
pub struct ParseVersionError(String);

impl Version {
    /// The version in what `mysqld --version` prints (`… mysqld  Ver 9.7.4 for Linux on x86_64 (…)`).
    pub fn from_banner(banner: &str) -> Result<Self, ParseVersionError> {
        let mut words = banner.split_whitespace();
        words
            .find(|word| *word == "Ver")
            .and_then(|_ver| words.next())
            .ok_or_else(|| ParseVersionError(banner.trim().to_owned()))?
            .parse()
    }

    /// Mainstay needs 8.0.26: semi-synchronous replication with source and replica as separate, renamed plugins.
    #[must_use]
    pub const fn is_supported(&self) -> bool {
        self.at_least(8, 0, 26)
    }

    /// GTIDs may carry a tag, so Mainstay's own transactions can be told from the users'.
    #[must_use]
    pub const fn has_gtid_tags(&self) -> bool {
        self.at_least(8, 3, 0)
    }

    /// Whether this server can be started on the files of a server of another version: of the same series, and not newer.
    #[must_use]
    pub const fn can_start_on(&self, files: &Self) -> bool {
        self.major == files.major && self.minor == files.minor && self.patch >= files.patch
    }

    /// Whether statements that a server of another version made can be loaded into this one: of the same series, or a newer
    /// one.
    #[must_use]
    pub const fn can_load(&self, made_by: &Self) -> bool {
        self.at_least(made_by.major, made_by.minor, 0)
    }

    const fn at_least(&self, major: u32, minor: u32, patch: u32) -> bool {
        if self.major != major {
            return self.major > major;
        }
        if self.minor != minor {
            return self.minor > minor;
        }
        self.patch >= patch
    }
}

impl FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseVersionError(text.to_owned());
        let mut numbers = text.splitn(3, '.');
        let mut next = || numbers.next().ok_or_else(error);
        let (major, minor, rest) = (next()?, next()?, next()?);
        let patch = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let number = |digits: &str| digits.parse().map_err(|_not_a_number| error());
        Ok(Self {
            major: number(major)?,
            minor: number(minor)?,
            patch: number(patch)?,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners() {
        let cases = [
            (
                "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))",
                "9.7.4-2",
                (9, 7, 4),
            ),
            (
                "/usr/sbin/mysqld  Ver 8.0.40 for Linux on aarch64 (MySQL Community Server - GPL)\n",
                "8.0.40",
                (8, 0, 40),
            ),
            (
                "mysqld  Ver 8.4.3-upgrade for Linux on x86_64 (x)",
                "8.4.3-upgrade",
                (8, 4, 3),
            ),
        ];
        for (banner, text, numbers) in cases {
            let version = Version::from_banner(banner).unwrap();
            assert_eq!(version.to_string(), text);
            assert_eq!((version.major, version.minor, version.patch), numbers);
        }
        for banner in [
            "",
            "mysqld",
            "mysqld Ver",
            "mysqld Ver x.y.z for Linux",
            "mysqld Ver 9.7 for Linux",
        ] {
            Version::from_banner(banner).unwrap_err();
        }
    }

    #[test]
    fn differences() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(!version("8.0.25").is_supported());
        assert!(version("8.0.26").is_supported());
        assert!(version("8.4.0").is_supported());
        assert!(!version("5.7.44").is_supported());
        assert!(!version("8.0.40").has_gtid_tags());
        assert!(!version("8.2.0").has_gtid_tags());
        assert!(version("8.3.0").has_gtid_tags());
        assert!(version("9.7.4").has_gtid_tags());
        assert!(version("9.7.4").can_load(&version("8.0.40")));
        assert!(version("9.7.4").can_load(&version("9.7.5")));
        assert!(!version("9.7.4").can_load(&version("9.8.0")));
        assert!(!version("8.4.9").can_load(&version("9.0.0")));
    }
}
