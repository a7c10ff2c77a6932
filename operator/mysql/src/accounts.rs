//! Mainstay's own accounts (decision B7), as statements.
//!
//! They exist on every instance from its initialisation on, made outside of the binlog, so that no login depends on a
//! primary. An init file sets them again at each start, before a client can connect and even under `super_read_only`: so
//! no edit of an account or a Secret locks Mainstay out. What is changed in a running server is found by [`Reference`] and
//! put right by the statements of a [`Restoration`].

mod check;
mod digest;
mod restore;

use std::collections::BTreeSet;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

use crate::port::REPLICATION_ACCOUNTS;
use crate::quote;
use crate::sql::{Statement, unlogged};

pub use check::{Account, AccountName, Finding, Reference, StoredHash, SystemAccounts, Wrong};
pub use restore::{Restoration, Way};

/// The instance manager's own account, `mainstay@localhost`.
pub const MANAGER: &str = "mainstay";
/// Prefix of the replication accounts, before the ordinal.
pub const REPLICATION_PREFIX: &str = "mainstay_repl_";
/// The account of a clone's recipient at its donor.
pub const CLONE: &str = "mainstay_clone";
/// For exporters beside mysqld, `mainstay_monitor@localhost`.
pub const MONITOR: &str = "mainstay_monitor";
/// The DBA's account, `root@'%'`.
pub const ROOT: &str = "root";

/// MySQL cuts the password of a replication account at 32 characters.
pub const MAX_REPLICATION_PASSWORD: usize = 32;

/// What the accounts' passwords do not depend on: no policy of the server may refuse or expire them.
const NEVER_EXPIRES: &str =
    "PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY PASSWORD REQUIRE CURRENT OPTIONAL";

/// Passwords of Mainstay's accounts; an absent one is left as it is.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `mainstay@localhost`
    pub manager: Option<SecretString>,
    /// `mainstay_repl_<n>@'%'`
    pub replication: Option<SecretString>,
    /// `mainstay_clone@'%'`
    pub clone: Option<SecretString>,
    /// `mainstay_monitor@localhost`
    pub monitor: Option<SecretString>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// User of the replication account of an ordinal.
#[must_use]
pub fn replication_user(ordinal: u32) -> String {
    format!("{REPLICATION_PREFIX}{ordinal}")
}

/// Ordinal of a replication account.
#[must_use]
pub fn replication_ordinal(user: &str) -> Option<u32> {
    user.strip_prefix(REPLICATION_PREFIX)?.parse().ok()
}

/// A group of accounts that are defined alike.
struct Group<'a> {
    accounts: Vec<AccountName>,
    password: &'a SecretString,
    require: &'static str,
    /// Privileges, each with its level (`ALL ON *.*`).
    grants: &'static [&'static str],
    /// Appended to the first grant.
    grant_option: bool,
    revokes: &'static [&'static str],
}

impl Group<'_> {
    fn names(&self) -> String {
        let each = |account: &AccountName| quote::account(&account.user, &account.host);
        self.accounts.iter().map(each).collect::<Vec<_>>().join(", ")
    }

    fn with_password(&self) -> String {
        self.with_password_and(|_| "")
    }

    /// Each account with its password, and what is said behind it.
    fn with_password_and(&self, behind: impl Fn(&AccountName) -> &'static str) -> String {
        let password = quote::string(self.password.expose_secret());
        let each = |account: &AccountName| {
            let name = quote::account(&account.user, &account.host);
            format!(
                "{name} IDENTIFIED WITH {} BY {password}{}",
                check::PLUGIN,
                behind(account)
            )
        };
        self.accounts.iter().map(each).collect::<Vec<_>>().join(", ")
    }

    /// Privileges with their level; not those of the manager, which are whatever the server calls ALL.
    fn privileges(&self) -> BTreeSet<String> {
        self.grants
            .iter()
            .flat_map(|what| check::each_privilege(what))
            .collect()
    }

    /// What `mysql.user.ssl_type` says of it.
    fn tls(&self) -> &'static str {
        if self.require == "SSL" { "ANY" } else { "" }
    }

    fn alter(&self) -> Statement {
        let (users, require) = (self.with_password(), self.require);
        Statement::secret(format!(
            "ALTER USER {users} REQUIRE {require} {NEVER_EXPIRES} ACCOUNT UNLOCK"
        ))
    }

    /// Few statements, each for the whole group: each costs two syncs of the disk at every start.
    fn statements(&self) -> Vec<Statement> {
        let (users, accounts) = (self.with_password(), self.names());
        let (require, option) = (self.require, if self.grant_option { " WITH GRANT OPTION" } else { "" });
        let mut statements = vec![
            Statement::secret(format!(
                "CREATE USER IF NOT EXISTS {users} REQUIRE {require} {NEVER_EXPIRES}"
            )),
            self.alter(),
        ];
        statements.extend(
            self.grants
                .iter()
                .map(|what| Statement::plain(format!("GRANT {what} TO {accounts}{option}"))),
        );
        statements.extend(
            self.revokes
                .iter()
                .map(|what| Statement::plain(format!("REVOKE {what} FROM {accounts}"))),
        );
        statements
    }
}

/// Local accounts: the manager first, because an init file ends at its first error.
fn local_groups(credentials: &Credentials) -> Vec<Group<'_>> {
    let manager = credentials.manager.as_ref().map(|password| Group {
        accounts: vec![AccountName::new(MANAGER, "localhost")],
        password,
        require: "NONE",
        grants: &["ALL ON *.*"],
        grant_option: true,
        // Its SHUTDOWN would acknowledge what no replica has (decision A1).
        revokes: &["SHUTDOWN ON *.*"],
    });
    let monitor = credentials.monitor.as_ref().map(|password| Group {
        accounts: vec![AccountName::new(MONITOR, "localhost")],
        password,
        require: "NONE",
        grants: &["PROCESS, REPLICATION CLIENT ON *.*", "SELECT ON performance_schema.*"],
        grant_option: false,
        revokes: &[],
    });
    manager.into_iter().chain(monitor).collect()
}

fn network_groups(credentials: &Credentials) -> Vec<Group<'_>> {
    let replication = credentials.replication.as_ref().map(|password| Group {
        accounts: (0..REPLICATION_ACCOUNTS)
            .map(|ordinal| AccountName::new(&replication_user(ordinal), "%"))
            .collect(),
        password,
        require: "SSL",
        grants: &["REPLICATION SLAVE, SERVICE_CONNECTION_ADMIN, CONNECTION_ADMIN ON *.*"],
        grant_option: false,
        revokes: &[],
    });
    let clone = credentials.clone.as_ref().map(|password| Group {
        accounts: vec![AccountName::new(CLONE, "%")],
        password,
        require: "SSL",
        grants: &["BACKUP_ADMIN, SERVICE_CONNECTION_ADMIN, CONNECTION_ADMIN ON *.*"],
        grant_option: false,
        revokes: &[],
    });
    replication.into_iter().chain(clone).collect()
}

/// All of them, as far as their passwords are known.
fn groups(credentials: &Credentials) -> impl Iterator<Item = Group<'_>> {
    local_groups(credentials).into_iter().chain(network_groups(credentials))
}

/// For what an init file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitFile<'a> {
    /// A data directory is made; the statements that load the time-zone tables, if there are any.
    Initialise {
        /// Output of `mysql_tzinfo_to_sql`.
        time_zones: Option<&'a str>,
    },
    /// A server is started.
    Start,
    /// A server is started for the first time on a clone, which brought its donor's channel along (decision A3).
    AfterClone,
}

/// The init file that makes Mainstay's accounts what the credentials say.
#[must_use]
pub fn init_file(purpose: InitFile<'_>, credentials: &Credentials) -> SecretString {
    let mut lines: Vec<Statement> = vec![
        Statement::plain(quote::SESSION_MODE),
        Statement::plain("SET SESSION sql_log_bin=0"),
    ];
    match purpose {
        // Without it, a login as root over the socket is one as `root@'%'`, when that exists.
        InitFile::Initialise { .. } => lines.push(Statement::plain("DROP USER IF EXISTS 'root'@'localhost'")),
        InitFile::AfterClone => lines.push(Statement::plain("RESET REPLICA ALL")),
        InitFile::Start => {}
    }
    lines.extend(groups(credentials).flat_map(|group| group.statements()));
    let mut text = String::new();
    for line in &lines {
        text.push_str(line.text());
        text.push_str(";\n");
    }
    if let InitFile::Initialise {
        time_zones: Some(time_zones),
    } = purpose
    {
        text.push_str("USE mysql;\n");
        text.push_str(time_zones);
    }
    text.into()
}

/// Statements that set the passwords of the local accounts in a running server, outside of the binlog.
pub(crate) fn local_passwords(credentials: &Credentials) -> Vec<Statement> {
    unlogged(local_groups(credentials).iter().map(Group::alter))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn all() -> Credentials {
        let password = |text: &str| Some(SecretString::from(text.to_owned()));
        Credentials {
            manager: password("ma'n"),
            replication: password("re\\pl"),
            clone: password("cl\none"),
            monitor: password("mon;"),
        }
    }

    fn lines(purpose: InitFile<'_>, credentials: &Credentials) -> Vec<String> {
        init_file(purpose, credentials)
            .expose_secret()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn f11_every_statement_of_an_init_file_is_one_line() {
        for purpose in [
            InitFile::Initialise { time_zones: None },
            InitFile::Start,
            InitFile::AfterClone,
        ] {
            for line in lines(purpose, &all()) {
                let verb = line.split(' ').next().unwrap();
                assert!(
                    ["SET", "CREATE", "ALTER", "GRANT", "REVOKE", "DROP", "RESET"].contains(&verb),
                    "{line}"
                );
                assert!(line.ends_with(';'), "{line}");
            }
        }
    }

    #[test]
    fn the_manager_comes_first_and_cannot_shut_down() {
        let lines = lines(InitFile::Start, &all());
        let at = |piece: &str| lines.iter().position(|line| line.contains(piece)).unwrap();
        assert_eq!(at("sql_mode"), 0);
        assert_eq!(at("sql_log_bin=0"), 1);
        assert_eq!(at("CREATE USER IF NOT EXISTS 'mainstay'@'localhost'"), 2);
        assert!(at("REVOKE SHUTDOWN ON *.* FROM 'mainstay'@'localhost'") < at("mainstay_repl_0"));
    }

    #[test]
    fn a_password_that_is_not_known_leaves_its_accounts_alone() {
        let credentials = Credentials {
            replication: None,
            ..all()
        };
        assert!(
            !init_file(InitFile::Start, &credentials)
                .expose_secret()
                .contains("mainstay_repl_")
        );
    }

    #[test]
    fn a_clone_forgets_its_donors_channel_first() {
        assert_eq!(lines(InitFile::AfterClone, &all())[2], "RESET REPLICA ALL;");
        assert!(!lines(InitFile::Start, &all()).iter().any(|line| line.contains("RESET")));
    }

    #[test]
    fn ordinals() {
        assert_eq!(replication_ordinal(&replication_user(6)), Some(6));
        assert_eq!(replication_ordinal("mainstay_clone"), None);
        assert_eq!(replication_ordinal("mainstay_repl_x"), None);
    }
}
