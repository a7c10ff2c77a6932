//! Statements that make accounts again what an init file makes them, in a running server.

use super::check::{AccountName, Finding, Wrong};
use super::{Credentials, Group, MANAGER, MONITOR, NEVER_EXPIRES, groups};
use crate::quote;
use crate::sql::Statement;

/// How accounts are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On an open primary, outside of the binlog, so that nothing waits for an acknowledgement. Replication accounts that are
    /// made anew are locked, and the locks of others stay: who may log in is told by the list in force (rule 1).
    Primary,
    /// On a server on which nobody writes, outside of the binlog: a GTID of its own would be errant. Any replication account
    /// may log in, as after a fence.
    Closed,
}

/// What is to be restored.
#[derive(Clone, Debug)]
pub struct Restoration {
    /// How.
    pub way: Way,
    /// Passwords.
    pub credentials: Credentials,
    /// Which accounts, and what is wrong with them.
    pub findings: Vec<Finding>,
    /// What the manager is granted, as `SHOW GRANTS` said it.
    pub own_grants: Vec<String>,
    /// Attribute of the monitor's account, if it has to be made anew.
    pub attribute: String,
}

impl Restoration {
    fn finding(&self, name: &AccountName) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.account == *name)
    }

    /// The statements, without the switch of the binlog.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        let mut statements = Vec::new();
        for mut group in groups(&self.credentials) {
            group.accounts.retain(|name| self.finding(name).is_some());
            if group.accounts.is_empty() {
                continue;
            }
            statements.extend(self.account(&group));
            if is(&group, MANAGER) {
                // ALL takes a grantor who has all, and the manager has no SHUTDOWN.
                statements.extend(self.own_grants.iter().map(|grant| Statement::plain(grant.as_str())));
            } else {
                let names = group.names();
                let grant = |what: &&str| Statement::plain(format!("GRANT {what} TO {names}"));
                statements.extend(group.grants.iter().map(grant));
            }
        }
        statements
    }

    fn account(&self, group: &Group<'_>) -> Vec<Statement> {
        let (require, names) = (group.require, group.names());
        let replication = group.accounts.iter().all(AccountName::is_replication);
        let (locked, unlocked) = match self.way {
            Way::Primary if replication => (" ACCOUNT LOCK", ""),
            Way::Primary | Way::Closed => ("", " ACCOUNT UNLOCK"),
        };
        let users = group.with_password_and(|name| self.behind_the_password(name));
        let mut statements = vec![
            Statement::secret(format!(
                "CREATE USER IF NOT EXISTS {} REQUIRE {require} {NEVER_EXPIRES}{locked}",
                group.with_password()
            )),
            Statement::secret(format!(
                "ALTER USER IF EXISTS {users} REQUIRE {require} {NEVER_EXPIRES}{unlocked}"
            )),
        ];
        if is(group, MONITOR) && !self.attribute.is_empty() {
            let attribute = quote::string(&self.attribute);
            statements.push(Statement::plain(format!(
                "ALTER USER IF EXISTS {names} ATTRIBUTE {attribute}"
            )));
        }
        statements
    }

    /// A password that is another one may be newer than the mounted one: it stays valid beside it.
    fn behind_the_password(&self, name: &AccountName) -> &'static str {
        let wrong = self
            .finding(name)
            .map(|finding| finding.wrong.as_slice())
            .unwrap_or_default();
        if wrong.contains(&Wrong::Password) {
            " RETAIN CURRENT PASSWORD"
        } else {
            ""
        }
    }
}

fn is(group: &Group<'_>, user: &str) -> bool {
    group.accounts.iter().all(|name| name.user == user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::tests::all;

    fn texts(way: Way, findings: &[(&str, &str, Wrong)]) -> Vec<String> {
        let finding = |(user, host, wrong): &(&str, &str, Wrong)| Finding {
            account: AccountName::new(user, host),
            wrong: vec![wrong.clone()],
        };
        let restoration = Restoration {
            way,
            credentials: all(),
            findings: findings.iter().map(finding).collect(),
            own_grants: vec!["GRANT SUPER ON *.* TO `mainstay`@`localhost` WITH GRANT OPTION".to_owned()],
            attribute: r#"{"mainstay": {"firstAccounts": true}}"#.to_owned(),
        };
        let statements = restoration.statements();
        assert!(
            statements
                .iter()
                .all(|s| s.is_secret() || !s.text().contains("IDENTIFIED"))
        );
        statements.iter().map(|statement| statement.text().to_owned()).collect()
    }

    #[test]
    fn a_replication_account_of_an_open_primary_is_made_locked_and_unlocked_by_the_list_alone() {
        let texts = texts(Way::Primary, &[("mainstay_repl_1", "%", Wrong::Missing)]);
        assert_eq!(texts.len(), 3);
        assert!(texts[0].starts_with("CREATE USER IF NOT EXISTS 'mainstay_repl_1'@'%' IDENTIFIED WITH"));
        assert!(
            texts[0].contains("REQUIRE SSL") && texts[0].ends_with(" ACCOUNT LOCK"),
            "{}",
            texts[0]
        );
        assert!(texts[1].starts_with("ALTER USER IF EXISTS 'mainstay_repl_1'@'%' IDENTIFIED WITH"));
        assert!(!texts[1].contains("ACCOUNT"), "{}", texts[1]);
        assert_eq!(
            texts[2],
            "GRANT REPLICATION SLAVE, SERVICE_CONNECTION_ADMIN, CONNECTION_ADMIN ON *.* TO 'mainstay_repl_1'@'%'"
        );
    }

    #[test]
    fn on_a_closed_server_everybody_may_log_in() {
        let texts = texts(
            Way::Closed,
            &[
                ("mainstay_repl_1", "%", Wrong::Missing),
                ("mainstay_clone", "%", Wrong::Locked),
            ],
        );
        let unlocked = texts.iter().filter(|text| text.ends_with("ACCOUNT UNLOCK")).count();
        assert_eq!(unlocked, 2, "{texts:?}");
        assert!(
            !texts
                .iter()
                .any(|text| text.contains("ACCOUNT LOCK") || text.contains("repl_2"))
        );
    }

    #[test]
    fn a_password_that_may_be_newer_stays_valid() {
        let retained = |way| {
            let texts = texts(way, &[("mainstay_repl_1", "%", Wrong::Password)]);
            texts
                .iter()
                .filter(|text| text.contains(" RETAIN CURRENT PASSWORD"))
                .count()
        };
        assert_eq!((retained(Way::Closed), retained(Way::Primary)), (1, 1));
    }

    #[test]
    fn the_manager_is_granted_what_it_had() {
        let texts = texts(Way::Primary, &[("mainstay", "localhost", Wrong::Missing)]);
        assert!(texts[1].ends_with(" ACCOUNT UNLOCK"));
        assert_eq!(
            texts[2],
            "GRANT SUPER ON *.* TO `mainstay`@`localhost` WITH GRANT OPTION"
        );
    }
}
