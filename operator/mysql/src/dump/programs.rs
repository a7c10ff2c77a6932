//! What holds code: routines, views, triggers and events, each with the session in which it was made.

use mysql_async::Row;

use super::ddl::{no_row, use_schema};
use super::script::Script;
use super::{DumpError, DumpServer, NAMES, OWN_SCHEMAS, Sink, qualified};
use crate::error::MysqlError;
use crate::{quote, read};

const WHAT: &str = "read a definition";

/// What kind of code, and in which columns of its SHOW CREATE things are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    word: &'static str,
    sql_mode: Option<usize>,
    time_zone: Option<usize>,
    definition: usize,
    /// character_set_client; collation_connection is next to it, and then comes the collation of the schema.
    character_set: usize,
    of_schema: bool,
}

const fn stored(word: &'static str) -> Shape {
    Shape {
        word,
        sql_mode: Some(1),
        time_zone: None,
        definition: 2,
        character_set: 3,
        of_schema: true,
    }
}

const FUNCTION: Shape = stored("FUNCTION");
const PROCEDURE: Shape = stored("PROCEDURE");
const TRIGGER: Shape = stored("TRIGGER");
const EVENT: Shape = Shape {
    word: "EVENT",
    sql_mode: Some(1),
    time_zone: Some(2),
    definition: 3,
    character_set: 4,
    of_schema: true,
};
const VIEW: Shape = Shape {
    word: "VIEW",
    sql_mode: None,
    time_zone: None,
    definition: 1,
    character_set: 2,
    of_schema: false,
};

/// A definition, and the session that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    schema: String,
    /// In its own character set.
    definition: Vec<u8>,
    sql_mode: String,
    character_set: String,
    collation: String,
    /// Collation of the schema when it was made, if that is another one by now; and the one of now.
    of_schema: Option<(String, String)>,
    /// Of an event: its time zone, and when it was created, in seconds since 1970. What it is due at was in the future then,
    /// and one whose time has passed would not be made.
    due: Option<(String, u64)>,
}

impl Program {
    /// Sets the session.
    pub(super) fn session(&self) -> String {
        let (mode, set, collation) = (quote::string(&self.sql_mode), &self.character_set, &self.collation);
        let due = self.due.as_ref().map(|(zone, created)| {
            let zone = quote::string(zone);
            format!(", time_zone={zone}, timestamp={created}")
        });
        format!(
            "SET SESSION sql_mode={mode}, character_set_client={set}, collation_connection={collation}{}",
            due.unwrap_or_default()
        )
    }

    /// The definition, for something that is there already.
    pub(super) fn replacement(&self) -> Vec<u8> {
        let rest = self.definition.strip_prefix(b"CREATE ").unwrap_or(&self.definition);
        [b"CREATE OR REPLACE ", rest].concat()
    }

    fn write(&self, script: &mut Script) {
        let alter = |collation: &str| format!("ALTER DATABASE {} COLLATE {collation}", quote::identifier(&self.schema));
        script.push(use_schema(&self.schema));
        if let Some((then, _)) = &self.of_schema {
            script.push(alter(then));
        }
        script.push(self.session());
        script.push(self.definition.clone());
        if let Some((_, now)) = &self.of_schema {
            script.push(alter(now));
        }
        if self.due.is_some() {
            script.push("SET SESSION timestamp=DEFAULT, time_zone='+00:00'");
        }
    }
}

impl DumpServer {
    /// What comes after the rows. Functions first: views may use them.
    pub(super) async fn objects<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let mut script = Script::new("objects");
        for (shape, which) in [
            (FUNCTION, "ROUTINE_TYPE='FUNCTION'"),
            (PROCEDURE, "ROUTINE_TYPE='PROCEDURE'"),
        ] {
            let routines = self.names("ROUTINE_SCHEMA, ROUTINE_NAME", "ROUTINES", which).await?;
            self.write_all(shape, routines, &mut script, sink).await?;
        }
        for (schema, name) in self.views_in_order().await.map_err(DumpError::from)? {
            let view = self.program(VIEW, &schema, &name).await.map_err(DumpError::from)?;
            self.try_view(&schema, &name, &view).await?;
            write(&view, &mut script, sink).await?;
        }
        // Of several triggers for one event the order counts, and it is that in which they are made.
        let order = "1=1 ORDER BY TRIGGER_SCHEMA, EVENT_OBJECT_TABLE, EVENT_MANIPULATION, ACTION_TIMING, ACTION_ORDER";
        let triggers = self.names("TRIGGER_SCHEMA, TRIGGER_NAME", "TRIGGERS", order).await?;
        self.write_all(TRIGGER, triggers, &mut script, sink).await?;
        let events = self.names("EVENT_SCHEMA, EVENT_NAME", "EVENTS", "1=1").await?;
        self.write_all(EVENT, events, &mut script, sink).await?;
        match script.file() {
            Some(file) => sink.take(file).await,
            None => Ok(()),
        }
    }

    /// Schema and name of everything of a kind that people made.
    async fn names(&mut self, columns: &str, table: &str, which: &str) -> Result<Vec<(String, String)>, DumpError> {
        let schema = columns.split(',').next().unwrap_or_default();
        let order = if which.contains("ORDER BY") {
            ""
        } else {
            " ORDER BY 1, 2"
        };
        let text = format!(
            "SELECT {columns} FROM information_schema.{table} WHERE {schema} NOT IN {OWN_SCHEMAS} AND {which}{order}"
        );
        let rows = self.query("list definitions", text).await?;
        let name = |row: &Row| Ok((read::text(row, 0)?, read::text(row, 1)?));
        rows.iter().map(name).collect()
    }

    async fn write_all<S: Sink>(
        &mut self,
        shape: Shape,
        names: Vec<(String, String)>,
        script: &mut Script,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        for (schema, name) in names {
            let program = self.program(shape, &schema, &name).await.map_err(DumpError::from)?;
            write(&program, script, sink).await?;
        }
        Ok(())
    }

    async fn program(&mut self, shape: Shape, schema: &str, name: &str) -> Result<Program, MysqlError> {
        let show = format!("SHOW CREATE {} {}", shape.word, qualified(schema, name));
        let shown = self.query(WHAT, &show).await?;
        let row = shown.first().ok_or_else(|| no_row(WHAT))?;
        let mut program = Program {
            schema: schema.to_owned(),
            definition: read::column(row, shape.definition)?,
            sql_mode: shape
                .sql_mode
                .map(|at| read::text(row, at))
                .transpose()?
                .unwrap_or_default(),
            character_set: read::text(row, shape.character_set)?,
            collation: read::text(row, shape.character_set + 1)?,
            ..Program::default()
        };
        if shape.of_schema {
            let then = read::text(row, shape.character_set + 2)?;
            let now = self.collation(schema).await?;
            program.of_schema = (then != now).then_some((then, now));
        }
        if let Some(at) = shape.time_zone {
            program.due = Some((read::text(row, at)?, self.created(schema, name).await?));
        }
        // What was written in another character set is written in that one again.
        if !program.character_set.starts_with("utf8") && !program.definition.is_ascii() {
            let set = format!("SET SESSION character_set_results={}", program.character_set);
            self.run(WHAT, set).await?;
            let shown = self.query(WHAT, &show).await?;
            program.definition = read::column(shown.first().ok_or_else(|| no_row(WHAT))?, shape.definition)?;
            self.run(WHAT, NAMES).await?;
        }
        Ok(program)
    }

    async fn collation(&mut self, schema: &str) -> Result<String, MysqlError> {
        let text = format!(
            "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME={}",
            quote::string(schema)
        );
        let rows = self.query(WHAT, text).await?;
        read::text(rows.first().ok_or_else(|| no_row(WHAT))?, 0)
    }

    async fn created(&mut self, schema: &str, event: &str) -> Result<u64, MysqlError> {
        let (schema, event) = (quote::string(schema), quote::string(event));
        let text = format!(
            "SELECT CAST(UNIX_TIMESTAMP(CREATED) AS UNSIGNED) FROM information_schema.EVENTS \
             WHERE EVENT_SCHEMA={schema} AND EVENT_NAME={event}"
        );
        let rows = self.query(WHAT, text).await?;
        read::column(rows.first().ok_or_else(|| no_row(WHAT))?, 0)
    }
}

async fn write<S: Sink>(program: &Program, script: &mut Script, sink: &mut S) -> Result<(), S::Error> {
    program.write(script);
    if script.is_full()
        && let Some(file) = script.file()
    {
        sink.take(file).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::script::statements;
    use super::*;

    #[test]
    fn an_event_is_made_in_the_session_and_at_the_time_in_which_it_was_made() {
        let event = Program {
            schema: "a".to_owned(),
            definition: b"CREATE EVENT `e` ON SCHEDULE AT '2020-01-01 00:00:00' DO SELECT 1".to_vec(),
            sql_mode: "ANSI_QUOTES".to_owned(),
            character_set: "latin1".to_owned(),
            collation: "latin1_german1_ci".to_owned(),
            of_schema: Some(("utf8mb4_bin".to_owned(), "latin1_swedish_ci".to_owned())),
            due: Some(("Europe/Berlin".to_owned(), 1_500_000_000)),
        };
        let mut script = Script::new("objects");
        event.write(&mut script);
        let file = script.file().unwrap().parts.concat();
        let texts: Vec<String> = statements(&file).unwrap()[2..]
            .iter()
            .map(|statement| String::from_utf8(statement.to_vec()).unwrap())
            .collect();
        assert_eq!(
            texts,
            [
                "USE `a`",
                "ALTER DATABASE `a` COLLATE utf8mb4_bin",
                "SET SESSION sql_mode='ANSI_QUOTES', character_set_client=latin1, collation_connection=latin1_german1_ci, \
                 time_zone='Europe/Berlin', timestamp=1500000000",
                "CREATE EVENT `e` ON SCHEDULE AT '2020-01-01 00:00:00' DO SELECT 1",
                "ALTER DATABASE `a` COLLATE latin1_swedish_ci",
                "SET SESSION timestamp=DEFAULT, time_zone='+00:00'",
            ]
        );
    }

    #[test]
    fn a_view_replaces_itself() {
        let view = Program {
            definition: b"CREATE ALGORITHM=UNDEFINED VIEW `a`.`v` AS select 1 AS `1`".to_vec(),
            ..Program::default()
        };
        let replaced = String::from_utf8(view.replacement()).unwrap();
        assert_eq!(
            replaced,
            "CREATE OR REPLACE ALGORITHM=UNDEFINED VIEW `a`.`v` AS select 1 AS `1`"
        );
    }
}
