//! What an init file makes Mainstay's accounts, compared with what a running server has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Credentials, Group, MANAGER, MONITOR, REPLICATION_PREFIX, digest, groups};

/// The plugin that all of them log in with.
pub(super) const PLUGIN: &str = "caching_sha2_password";

/// Name of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountName {
    /// User.
    pub user: String,
    /// Host part.
    pub host: String,
}

impl AccountName {
    /// One of Mainstay's accounts.
    #[must_use]
    pub fn new(user: &str, host: &str) -> Self {
        Self {
            user: user.to_owned(),
            host: host.to_owned(),
        }
    }

    /// Its locks say who may acknowledge: they belong to the list in force (rule 1), and are nothing that is wrong.
    pub(super) fn is_replication(&self) -> bool {
        self.user.starts_with(REPLICATION_PREFIX)
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.host)
    }
}

/// A stored hash of a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredHash(pub String);

impl fmt::Debug for StoredHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredHash(..)")
    }
}

/// An account as a server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// It may not log in.
    pub locked: bool,
    /// Its password has expired, or will.
    pub expires: bool,
    /// Authentication plugin.
    pub plugin: String,
    /// `ssl_type`: `ANY` with REQUIRE SSL, empty with REQUIRE NONE.
    pub tls: String,
    /// The password, and the one that is valid beside it.
    pub hashes: Vec<StoredHash>,
    /// Privileges with their level (`PROCESS ON *.*`); of the manager's account see [`SystemAccounts::own_grants`].
    pub privileges: BTreeSet<String>,
    /// Its attribute, a JSON object: Mainstay's notes, on the monitor's account.
    pub attribute: String,
}

/// Mainstay's accounts as a server has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemAccounts {
    /// Those that exist.
    pub accounts: BTreeMap<AccountName, Account>,
    /// What `SHOW GRANTS` says of the manager's own account.
    pub own_grants: Vec<String>,
}

/// What is wrong with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not exist.
    Missing,
    /// It may not log in.
    Locked,
    /// Its password has expired, or will.
    Expires,
    /// It logs in with another plugin, or other demands on TLS.
    Login,
    /// Neither its password nor the one beside it is the mounted one.
    Password,
    /// It lacks privileges.
    Lacks(BTreeSet<String>),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::Locked => f.write_str("is locked"),
            Self::Expires => f.write_str("has a password that expires"),
            Self::Login => f.write_str("logs in in another way"),
            Self::Password => f.write_str("has another password"),
            Self::Lacks(privileges) => {
                let privileges: Vec<_> = privileges.iter().map(String::as_str).collect();
                write!(f, "lacks {}", privileges.join(", "))
            }
        }
    }
}

/// An account that is not what an init file makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub account: AccountName,
    /// What is wrong with it.
    pub wrong: Vec<Wrong>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong: Vec<_> = self.wrong.iter().map(ToString::to_string).collect();
        write!(f, "{} {}", self.account, wrong.join(", "))
    }
}

/// What is remembered of the accounts of one server process.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// Hashes that were found to be those of a password.
    verified: BTreeMap<AccountName, (Vec<StoredHash>, SecretString)>,
    /// What the init file granted the manager: what it had when it was looked at first.
    own_grants: Vec<String>,
    /// The notes, as they were seen last.
    attribute: String,
}

impl Reference {
    /// What the manager's account is granted when it has to be made again.
    #[must_use]
    pub fn own_grants(&self) -> &[String] {
        &self.own_grants
    }

    /// The attribute that the monitor's account gets when it has to be made again.
    #[must_use]
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// What is wrong. Accounts whose password is not known are left alone, as an init file does. `passwords`: they are
    /// judged; otherwise somebody is about to set them.
    pub fn compare(&mut self, credentials: &Credentials, seen: &SystemAccounts, passwords: bool) -> Vec<Finding> {
        let own = AccountName::new(MANAGER, "localhost");
        if self.own_grants.is_empty() && seen.accounts.contains_key(&own) {
            self.own_grants.clone_from(&seen.own_grants);
        }
        let monitor = seen.accounts.get(&AccountName::new(MONITOR, "localhost"));
        if let Some(monitor) = monitor {
            self.attribute.clone_from(&monitor.attribute);
        }
        let mut findings = Vec::new();
        for group in groups(credentials) {
            for name in &group.accounts {
                let wrong = match seen.accounts.get(name) {
                    None => vec![Wrong::Missing],
                    Some(account) => self.wrong_with(name, account, &group, seen, passwords),
                };
                if !wrong.is_empty() {
                    let account = name.clone();
                    findings.push(Finding { account, wrong });
                }
            }
        }
        findings
    }

    fn wrong_with(
        &mut self,
        name: &AccountName,
        account: &Account,
        group: &Group<'_>,
        seen: &SystemAccounts,
        passwords: bool,
    ) -> Vec<Wrong> {
        let (wanted, has) = if name.user == MANAGER {
            (privileges(&self.own_grants), privileges(&seen.own_grants))
        } else {
            (group.privileges(), account.privileges.clone())
        };
        let lacks: BTreeSet<String> = wanted.difference(&has).cloned().collect();
        let login = account.plugin != PLUGIN || account.tls != group.tls();
        let password = passwords && !login && !self.is_password(name, account, group.password);
        let wrong = [
            (account.locked && !name.is_replication(), Wrong::Locked),
            (account.expires, Wrong::Expires),
            (login, Wrong::Login),
            (password, Wrong::Password),
            (!lacks.is_empty(), Wrong::Lacks(lacks)),
        ];
        let mut wrong = Vec::from(wrong);
        wrong.retain(|(is, _)| *is);
        wrong.into_iter().map(|(_, wrong)| wrong).collect()
    }

    /// A hash costs milliseconds, so each is computed once.
    fn is_password(&mut self, name: &AccountName, account: &Account, password: &SecretString) -> bool {
        let known = self.verified.get(name);
        if known.is_some_and(|(hashes, of)| *hashes == account.hashes && of.expose_secret() == password.expose_secret())
        {
            return true;
        }
        let is = account
            .hashes
            .iter()
            .any(|hash| digest::matches(&hash.0, password.expose_secret()).unwrap_or(true));
        if is {
            self.verified
                .insert(name.clone(), (account.hashes.clone(), password.clone()));
        }
        is
    }
}

/// The privileges of `SHOW GRANTS`, each with its level.
fn privileges(grants: &[String]) -> BTreeSet<String> {
    grants.iter().flat_map(|grant| granted(grant)).collect()
}

/// `GRANT A, B ON *.* TO `x`@`y` WITH GRANT OPTION` is `A ON *.*`, `B ON *.*`, `GRANT OPTION ON *.*`.
fn granted(grant: &str) -> BTreeSet<String> {
    let parts = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON "));
    let Some((list, rest)) = parts else {
        return BTreeSet::new();
    };
    let level = rest.split(" TO ").next().unwrap_or_default();
    let option = rest.ends_with(" WITH GRANT OPTION").then_some("GRANT OPTION");
    let names = list.split(',').map(str::trim).chain(option);
    names.map(|name| format!("{name} ON {level}")).collect()
}

/// `A, B ON *.*` is `A ON *.*`, `B ON *.*`.
pub(super) fn each_privilege(what: &str) -> BTreeSet<String> {
    granted(&format!("GRANT {what} TO x"))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
