//! The rows of a table as statements, as they are read: never a whole table in memory.

use futures::StreamExt as _;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Row, Value};

use super::literal::Column;
use super::script::Script;
use super::{DumpError, DumpServer, LARGEST_PACKET, Sink, Table};
use crate::error::{Fault, MysqlError};
use crate::session::fault;
use crate::{quote, read};

/// Bytes after which a statement ends. A row that is larger is a statement of its own.
const STATEMENT: usize = 1 << 20;
/// What has to be left of the largest packet.
const SPARE: usize = 1 << 20;

const WHAT: &str = "read the rows of a table";

/// Which rows of a table, and how they are written.
pub(super) struct Source<'a> {
    /// Kind of the file.
    pub(super) kind: &'static str,
    /// `INSERT` or `REPLACE`.
    pub(super) verb: &'static str,
    pub(super) table: &'a Table,
    /// WHERE and its condition, or nothing.
    pub(super) filter: &'a str,
}

impl DumpServer {
    /// All rows of a table. In the order of the primary key, if there is one: so they are loaded fastest.
    pub(super) async fn rows<S: Sink>(&mut self, table: &Table, sink: &mut S) -> Result<(), S::Error> {
        let source = Source {
            kind: "rows",
            verb: "INSERT",
            table,
            filter: "",
        };
        let mut script = Script::new(source.kind);
        self.rows_of(&source, &mut script, sink).await?;
        match script.file() {
            Some(file) => sink.take(file).await,
            None => Ok(()),
        }
    }

    /// Rows as statements into a file; what fills it goes into the sink.
    pub(super) async fn rows_of<S: Sink>(
        &mut self,
        source: &Source<'_>,
        script: &mut Script,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let columns = self.columns(source.table).await?;
        let primary = self.has_primary_key(source.table).await.map_err(DumpError::from)?;
        let mut insert = Insert::new(source, &columns);
        let lost = |error| DumpError::Mysql(fault(WHAT, false, Fault::from(error)));
        let select = select(source, &columns, primary);
        let mut result = self.conn.query_iter(select).await.map_err(lost)?;
        let Some(mut rows) = result.stream::<Row>().await.map_err(lost)? else {
            return Ok(());
        };
        while let Some(row) = rows.next().await {
            let row = row.map_err(lost)?.unwrap();
            insert.make_room(&row, script);
            insert.add(&columns, &row).map_err(DumpError::from)?;
            if insert.is_too_large() {
                let table = source.table.quoted();
                return Err(DumpError::TooLarge { table }.into());
            }
            if insert.statement.len() >= STATEMENT {
                insert.finish(script);
            }
            if script.is_full()
                && let Some(file) = script.file()
            {
                sink.take(file).await?;
            }
        }
        insert.finish(script);
        Ok(())
    }

    /// The columns that are stored: what is generated is made again.
    async fn columns(&mut self, table: &Table) -> Result<Vec<Column>, DumpError> {
        let (schema, name) = (quote::string(&table.schema), quote::string(&table.name));
        let text = format!(
            "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA={schema} AND TABLE_NAME={name} AND GENERATION_EXPRESSION='' ORDER BY ORDINAL_POSITION"
        );
        let rows = self.query("list the columns of a table", text).await?;
        let column = |row: &Row| {
            let (column, data_type) = (read::text(row, 0)?, read::text(row, 1)?);
            let set: Option<String> = read::column(row, 2)?;
            Column::new(&column, &data_type, set.as_deref()).ok_or_else(|| DumpError::Type {
                column: format!("{}.{}", table.quoted(), quote::identifier(&column)),
                data_type,
            })
        };
        rows.iter().map(column).collect()
    }

    async fn has_primary_key(&mut self, table: &Table) -> Result<bool, MysqlError> {
        let (schema, name) = (quote::string(&table.schema), quote::string(&table.name));
        let text = format!(
            "SELECT 1 FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA={schema} AND TABLE_NAME={name} \
             AND CONSTRAINT_TYPE='PRIMARY KEY'"
        );
        Ok(!self.query("look for a primary key", text).await?.is_empty())
    }
}

fn select(source: &Source<'_>, columns: &[Column], primary: bool) -> String {
    let expressions: Vec<String> = columns.iter().map(Column::expression).collect();
    // A table may have nothing but what is generated; its rows count all the same.
    let expressions = if expressions.is_empty() {
        "1".to_owned()
    } else {
        expressions.join(",")
    };
    let index = if primary { " FORCE INDEX (PRIMARY)" } else { "" };
    format!(
        "SELECT {expressions} FROM {}{index}{}",
        source.table.quoted(),
        source.filter
    )
}

/// A statement that is being written.
struct Insert {
    beginning: Vec<u8>,
    statement: Vec<u8>,
    rows: u64,
}

impl Insert {
    fn new(source: &Source<'_>, columns: &[Column]) -> Self {
        let names: Vec<String> = columns.iter().map(Column::quoted).collect();
        let (verb, table) = (source.verb, source.table.quoted());
        Self {
            beginning: format!("{verb} INTO {table} ({}) VALUES\n", names.join(",")).into_bytes(),
            statement: Vec::new(),
            rows: 0,
        }
    }

    /// Ends the statement before a row with which it would grow too large.
    fn make_room(&mut self, row: &[Value], script: &mut Script) {
        let size = |value: &Value| match value {
            Value::Bytes(bytes) => 2 * bytes.len(),
            _ => 0,
        };
        let more: usize = row.iter().map(size).sum();
        if self.statement.len() + more > STATEMENT {
            self.finish(script);
        }
    }

    fn add(&mut self, columns: &[Column], row: &[Value]) -> Result<(), MysqlError> {
        if self.rows == 0 {
            self.statement.extend_from_slice(&self.beginning);
        } else {
            self.statement.extend_from_slice(b",\n");
        }
        self.rows += 1;
        self.statement.push(b'(');
        for (place, (column, value)) in columns.iter().zip(row).enumerate() {
            if place > 0 {
                self.statement.push(b',');
            }
            let value = match value {
                Value::NULL => None,
                Value::Bytes(bytes) => Some(bytes.as_slice()),
                other => {
                    return Err(MysqlError::Unexpected {
                        what: WHAT,
                        reason: format!("a value that is no text, but {}", kind(other)),
                    });
                }
            };
            column.write(&mut self.statement, value);
        }
        self.statement.push(b')');
        Ok(())
    }

    const fn is_too_large(&self) -> bool {
        self.statement.len() > LARGEST_PACKET - SPARE
    }

    fn finish(&mut self, script: &mut Script) {
        if self.rows > 0 {
            script.push_rows(std::mem::take(&mut self.statement), self.rows);
            self.rows = 0;
        }
    }
}

/// Of a value, which itself belongs into no message.
const fn kind(value: &Value) -> &'static str {
    match value {
        Value::NULL | Value::Bytes(_) => "text",
        Value::Int(_) | Value::UInt(_) => "an integer",
        Value::Float(_) | Value::Double(_) => "a number",
        Value::Date(..) | Value::Time(..) => "a time",
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::statements;
    use super::*;

    fn bytes(length: usize) -> Vec<Value> {
        vec![Value::Bytes(vec![7; length]), Value::NULL]
    }

    #[test]
    fn statements_are_bounded_and_a_large_row_goes_alone() {
        let table = Table {
            schema: "a".to_owned(),
            name: "t`x".to_owned(),
            has_rows: true,
        };
        let source = Source {
            kind: "rows",
            verb: "INSERT",
            table: &table,
            filter: "",
        };
        let columns = [
            Column::new("b", "blob", None).unwrap(),
            Column::new("n", "int", None).unwrap(),
        ];
        assert_eq!(
            select(&source, &columns, true),
            "SELECT `b`,`n` FROM `a`.`t``x` FORCE INDEX (PRIMARY)"
        );
        let mut script = Script::new("rows");
        let mut insert = Insert::new(&source, &columns);
        for length in [10, 10, STATEMENT, 10, 300_000, 300_000] {
            let row = bytes(length);
            insert.make_room(&row, &mut script);
            insert.add(&columns, &row).unwrap();
        }
        insert.finish(&mut script);
        let file = script.file().unwrap();
        assert_eq!(file.rows, 6);
        let content = file.parts.concat();
        let statements = statements(&content).unwrap();
        let rows: Vec<usize> = statements[2..]
            .iter()
            .map(|statement| statement.split(|byte| *byte == b'(').count() - 2)
            .collect();
        assert_eq!(rows, [2, 1, 2, 1]);
        let small = String::from_utf8(statements[2].to_vec()).unwrap();
        let value = format!("(0x{},NULL)", "07".repeat(10));
        assert_eq!(
            small,
            format!("INSERT INTO `a`.`t``x` (`b`,`n`) VALUES\n{value},\n{value}")
        );
    }
}
