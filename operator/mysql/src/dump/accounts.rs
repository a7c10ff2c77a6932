//! Accounts, roles and rights: the rows of the grant tables themselves.
//!
//! CREATE USER and GRANT cannot say all that is in them: a former password that is still valid, a right on a table or a column
//! that is gone, or on an account's behalf (PROXY) that the grantor does not have. And what is in the archive behind the
//! backup may revoke exactly that, which fails where it was never granted.

use super::rows::Source;
use super::script::Script;
use super::{DumpError, DumpServer, Sink, Table};
use crate::accounts::{CLONE, MANAGER, MONITOR, REPLICATION_PREFIX};
use crate::{read, sql};

/// Grant tables, with the columns that name accounts. `servers` holds those of FEDERATED tables, and names none.
const TABLES: [(&str, &[(&str, &str)]); 11] = [
    ("user", &[("User", "Host")]),
    ("db", &[("User", "Host")]),
    ("tables_priv", &[("User", "Host")]),
    ("columns_priv", &[("User", "Host")]),
    ("procs_priv", &[("User", "Host")]),
    ("proxies_priv", &[("User", "Host")]),
    ("global_grants", &[("USER", "HOST")]),
    ("role_edges", &[("FROM_USER", "FROM_HOST"), ("TO_USER", "TO_HOST")]),
    ("default_roles", &[("USER", "HOST")]),
    ("password_history", &[("User", "Host")]),
    ("servers", &[]),
];

/// What a server of 8.2 or later makes of this privilege when it is upgraded. What it knows is what the account has that
/// loads.
const SUCCESSORS: &str = "\
INSERT IGNORE INTO mysql.global_grants (USER, HOST, PRIV, WITH_GRANT_OPTION) \
SELECT g.USER, g.HOST, k.PRIV, g.WITH_GRANT_OPTION FROM mysql.global_grants g JOIN \
(SELECT DISTINCT PRIV FROM mysql.global_grants WHERE PRIV IN ('SET_ANY_DEFINER','ALLOW_NONEXISTENT_DEFINER')) k \
WHERE g.PRIV='SET_USER_ID'";

/// Rows that are about people's accounts: not the server's own, and not Mainstay's, which each cluster makes for itself.
fn filter(accounts: &[(&str, &str)]) -> String {
    let own = |(user, host): &(&str, &str)| {
        format!(
            "NOT ({user} IN ('mysql.session','mysql.sys','mysql.infoschema') \
             OR {user} IN ('{MANAGER}','{MONITOR}') AND {host}='localhost' \
             OR ({user}='{CLONE}' OR {user} REGEXP '^{REPLICATION_PREFIX}[0-9]+$') AND {host}='%')"
        )
    };
    let each: Vec<String> = accounts.iter().map(own).collect();
    if each.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", each.join(" AND "))
    }
}

impl DumpServer {
    /// The grant tables. Whoever loads keeps the rights with which it began.
    pub(super) async fn accounts<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let mut script = Script::new("accounts");
        for (name, accounts) in TABLES {
            let table = Table {
                schema: "mysql".to_owned(),
                name: name.to_owned(),
                has_rows: true,
            };
            let source = Source {
                kind: "accounts",
                verb: "REPLACE",
                table: &table,
                filter: &filter(accounts),
            };
            self.rows_of(&source, &mut script, sink).await?;
        }
        script.push(SUCCESSORS);
        script.push("FLUSH PRIVILEGES");
        if let Some(notes) = self.notes().await? {
            script.push(sql::note(&notes).text());
        }
        match script.file() {
            Some(file) => sink.take(file).await,
            None => Ok(()),
        }
    }

    /// What Mainstay remembers in the data.
    async fn notes(&mut self) -> Result<Option<String>, DumpError> {
        let rows = self.query("read what was noted", sql::READ_NOTES).await?;
        let notes = rows.first().map(|row| read::text(row, 0)).transpose()?;
        Ok(notes.filter(|notes| !notes.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_s_accounts_are_dumped() {
        assert_eq!(filter(&[]), "");
        let both = filter(&[("FROM_USER", "FROM_HOST"), ("TO_USER", "TO_HOST")]);
        assert!(both.starts_with(" WHERE NOT (FROM_USER IN ('mysql.session'"), "{both}");
        assert!(both.contains(" AND NOT (TO_USER IN ("), "{both}");
        assert!(both.contains("TO_USER REGEXP '^mainstay_repl_[0-9]+$'"), "{both}");
    }
}
