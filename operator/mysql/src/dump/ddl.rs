//! Schemas and tables.

use mysql_async::Row;

use super::script::Script;
use super::{DumpError, DumpServer, OWN_SCHEMAS, Sink, Table};
use crate::error::MysqlError;
use crate::{quote, read};

/// Those that people made. The file of one gets another name where it is made again, and so cannot be in the way.
const TABLESPACES: &str = "SELECT NAME, ZIP_PAGE_SIZE, ENCRYPTION FROM information_schema.INNODB_TABLESPACES \
                           WHERE SPACE_TYPE='General' AND NAME<>'mysql' ORDER BY NAME";

impl DumpServer {
    /// The tables that people made.
    pub(super) async fn tables(&mut self) -> Result<Vec<Table>, MysqlError> {
        let text = format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' \
             AND TABLE_SCHEMA NOT IN {OWN_SCHEMAS} ORDER BY TABLE_SCHEMA, TABLE_NAME"
        );
        let rows = self.query("list the tables", text).await?;
        let table = |row: &Row| {
            Ok(Table {
                schema: read::text(row, 0)?,
                name: read::text(row, 1)?,
                has_rows: read::text(row, 2)?.eq_ignore_ascii_case("InnoDB"),
            })
        };
        rows.iter().map(table).collect()
    }

    /// What has to be there before the rows.
    pub(super) async fn schema<S: Sink>(&mut self, tables: &[Table], sink: &mut S) -> Result<(), S::Error> {
        let mut script = Script::new("schema");
        self.tablespaces(&mut script).await?;
        self.schemas(&mut script).await?;
        let mut used = None;
        for table in tables {
            if used != Some(&table.schema) {
                script.push(use_schema(&table.schema));
                used = Some(&table.schema);
            }
            let created = self.table(table).await.map_err(DumpError::from)?;
            script.push(created);
            if script.is_full()
                && let Some(file) = script.file()
            {
                sink.take(file).await?;
                used = None;
            }
        }
        match script.file() {
            Some(file) => sink.take(file).await,
            None => Ok(()),
        }
    }

    async fn tablespaces(&mut self, script: &mut Script) -> Result<(), DumpError> {
        for row in self.query("list the tablespaces", TABLESPACES).await? {
            let (name, page, encryption) = (read::text(&row, 0)?, read::text(&row, 1)?, read::text(&row, 2)?);
            let block = if page == "0" {
                String::new()
            } else {
                format!(" FILE_BLOCK_SIZE={page}")
            };
            let encryption = if encryption == "Y" { " ENCRYPTION='Y'" } else { "" };
            let name = quote::identifier(&name);
            script.push(format!("CREATE TABLESPACE {name}{block}{encryption} ENGINE=InnoDB"));
        }
        Ok(())
    }

    async fn schemas(&mut self, script: &mut Script) -> Result<(), DumpError> {
        const WHAT: &str = "read the definition of a schema";
        let text = format!(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN {OWN_SCHEMAS} ORDER BY 1"
        );
        for row in self.query("list the schemas", text).await? {
            let name = quote::identifier(&read::text(&row, 0)?);
            let created = self.query(WHAT, format!("SHOW CREATE DATABASE {name}")).await?;
            let created = created.first().ok_or_else(|| no_row(WHAT))?;
            script.push(read::column::<Vec<u8>>(created, 1)?);
        }
        Ok(())
    }

    async fn table(&mut self, table: &Table) -> Result<Vec<u8>, MysqlError> {
        const WHAT: &str = "read the definition of a table";
        let created = self
            .query(WHAT, format!("SHOW CREATE TABLE {}", table.quoted()))
            .await?;
        read::column(created.first().ok_or_else(|| no_row(WHAT))?, 1)
    }
}

pub(super) fn use_schema(schema: &str) -> String {
    format!("USE {}", quote::identifier(schema))
}

pub(super) fn no_row(what: &'static str) -> MysqlError {
    MysqlError::Unexpected {
        what,
        reason: "no row".to_owned(),
    }
}
