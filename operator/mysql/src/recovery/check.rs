//! What is asked of a restored server when a backup is verified: whether each of its tables can be read (docs/backup.md,
//! "Verification").

use mysql_async::Row;

use super::RecoveringServer;
use crate::error::MysqlError;
use crate::sql::Statement;
use crate::{quote, read};

/// Tables in the files. What the server makes up when it is asked is none.
const TABLES: &str = "FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' \
                      AND TABLE_SCHEMA NOT IN ('information_schema','performance_schema')";

/// QUICK: every index is read in its order and counted. Without it InnoDB walks each one once more from page to page.
fn check_table(schema: &str, table: &str) -> String {
    let (schema, table) = (quote::identifier(schema), quote::identifier(table));
    format!("CHECK TABLE {schema}.{table} QUICK")
}

impl RecoveringServer {
    /// How many tables there are.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn count_tables(&self) -> Result<u64, MysqlError> {
        const WHAT: &str = "count the tables";
        let rows = self.rows(WHAT, format!("SELECT COUNT(*) {TABLES}")).await?;
        rows.first().map_or(Ok(0), |row| read::column(row, 0))
    }

    /// The schemas that have tables.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn schemas(&self) -> Result<Vec<String>, MysqlError> {
        const WHAT: &str = "list the schemas";
        let rows = self
            .rows(WHAT, format!("SELECT DISTINCT TABLE_SCHEMA {TABLES} ORDER BY 1"))
            .await?;
        rows.iter().map(|row| read::text(row, 0)).collect()
    }

    /// The tables of a schema.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn tables(&self, schema: &str) -> Result<Vec<String>, MysqlError> {
        const WHAT: &str = "list the tables of a schema";
        let schema = quote::string(schema);
        let text = format!("SELECT TABLE_NAME {TABLES} AND TABLE_SCHEMA={schema} ORDER BY 1");
        let rows = self.rows(WHAT, text).await?;
        rows.iter().map(|row| read::text(row, 0)).collect()
    }

    /// Reads a table; what is wrong with it, in the server's words. It takes as long as it takes.
    ///
    /// # Errors
    /// The server does not answer, or cannot check it at all.
    pub async fn check(&self, schema: &str, table: &str) -> Result<Option<String>, MysqlError> {
        const WHAT: &str = "check a table";
        let statement = [Statement::plain(check_table(schema, table))];
        let mut session = self.session.lock().await;
        let results = session.run_unlimited(&self.dialer, WHAT, &statement).await?;
        let mut said = Vec::new();
        for row in results.iter().flatten() {
            said.push((read::text(row, 2)?, read::text(row, 3)?));
        }
        Ok(wrong(&said))
    }

    /// How many XA transactions are prepared.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn prepared(&self) -> Result<u64, MysqlError> {
        let rows = self.rows("list prepared transactions", "XA RECOVER".to_owned()).await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }

    async fn rows(&self, what: &'static str, text: String) -> Result<Vec<Row>, MysqlError> {
        let results = self.run(what, &[Statement::plain(text)]).await?;
        Ok(results.into_iter().next().unwrap_or_default())
    }
}

/// The lines of an answer, by kind and text, that say that a table is not as it should be.
fn wrong(said: &[(String, String)]) -> Option<String> {
    let good = |(kind, text): &&(String, String)| match kind.to_ascii_lowercase().as_str() {
        // An engine that cannot check has opened the table all the same.
        "note" | "info" => true,
        "status" => text == "OK" || text == "Table is already up to date",
        _ => false,
    };
    let failed = said.iter().any(|line| !good(&line)) || said.is_empty();
    let words: Vec<String> = said.iter().map(|(kind, text)| format!("{kind}: {text}")).collect();
    failed.then(|| {
        if words.is_empty() {
            "the server said nothing".to_owned()
        } else {
            words.join("; ")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(check_table("a`b", "t x"), "CHECK TABLE `a``b`.`t x` QUICK");
    }

    #[test]
    fn what_is_not_ok_is_wrong() {
        let said = |lines: &[(&str, &str)]| {
            let lines: Vec<_> = lines.iter().map(|(k, t)| ((*k).to_owned(), (*t).to_owned())).collect();
            wrong(&lines)
        };
        assert_eq!(said(&[("status", "OK")]), None);
        assert_eq!(
            said(&[("note", "The storage engine for the table doesn't support check")]),
            None
        );
        assert_eq!(
            said(&[
                ("Warning", "InnoDB: The B-tree of index v is corrupted."),
                ("error", "Corrupt")
            ])
            .as_deref(),
            Some("Warning: InnoDB: The B-tree of index v is corrupted.; error: Corrupt")
        );
        assert!(said(&[("status", "Operation failed")]).is_some());
        assert!(said(&[]).is_some());
    }
}
