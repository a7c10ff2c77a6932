//! What a server holds, so that two of them, or one at two times, can be compared.

use std::collections::BTreeMap;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};

/// By kind and name, as text: definitions, checksum and rows of every table, views, routines, triggers, events, accounts, roles.
pub(crate) type Content = BTreeMap<String, String>;

/// Schemas that are the server's own.
const OWN: &str = "('mysql','sys','performance_schema','information_schema')";

/// Queries of two columns, what and how it is; `OWN` is [`OWN`].
const OBJECTS: [&str; 8] = [
    "SELECT CONCAT('view ', TABLE_SCHEMA, '.', TABLE_NAME), CONCAT_WS(' ', DEFINER, SECURITY_TYPE, VIEW_DEFINITION) \
     FROM information_schema.VIEWS WHERE TABLE_SCHEMA NOT IN OWN",
    "SELECT CONCAT('routine ', ROUTINE_SCHEMA, '.', ROUTINE_NAME), CONCAT_WS(' ', DEFINER, ROUTINE_TYPE, ROUTINE_DEFINITION) \
     FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA NOT IN OWN",
    "SELECT CONCAT('trigger ', TRIGGER_SCHEMA, '.', TRIGGER_NAME), CONCAT_WS(' ', DEFINER, ACTION_TIMING, \
     EVENT_MANIPULATION, EVENT_OBJECT_TABLE, ACTION_STATEMENT) FROM information_schema.TRIGGERS \
     WHERE TRIGGER_SCHEMA NOT IN OWN",
    "SELECT CONCAT('event ', EVENT_SCHEMA, '.', EVENT_NAME), CONCAT_WS(' ', DEFINER, EVENT_DEFINITION) \
     FROM information_schema.EVENTS",
    "SELECT CONCAT('schema ', SCHEMA_NAME), CONCAT_WS(' ', DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME) \
     FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN OWN",
    "SELECT CONCAT('account ', User, '@', Host), CONCAT_WS(' ', plugin, HEX(authentication_string), account_locked) \
     FROM mysql.user WHERE User NOT LIKE 'mainstay%' AND User NOT LIKE 'mysql.%' AND User<>'root'",
    "SELECT CONCAT('role ', FROM_USER, '@', FROM_HOST, ' of ', TO_USER, '@', TO_HOST), WITH_ADMIN_OPTION FROM mysql.role_edges",
    "SELECT CONCAT('right ', GRANTEE, ' ', PRIVILEGE_TYPE, ' on ', TABLE_SCHEMA), IS_GRANTABLE \
     FROM information_schema.SCHEMA_PRIVILEGES WHERE TABLE_SCHEMA NOT IN OWN",
];

/// Reads all of it.
pub(crate) async fn content(conn: &mut Conn) -> Content {
    let mut content = Content::new();
    let tables = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' \
                  AND TABLE_SCHEMA NOT IN OWN";
    let tables: Vec<(String, String)> = conn.query(tables.replace("OWN", OWN)).await.unwrap();
    for (schema, table) in tables {
        let name = format!("{}.{}", quoted(&schema), quoted(&table));
        let sum: Option<Row> = conn
            .query_first(format!("CHECKSUM TABLE {name} EXTENDED"))
            .await
            .unwrap();
        let sum: Option<u64> = sum.unwrap().get(1).unwrap();
        let rows: Vec<Row> = conn.query(format!("SELECT * FROM {name}")).await.unwrap();
        let mut rows: Vec<String> = rows.into_iter().map(|row| format!("{:?}", row.unwrap())).collect();
        rows.sort_unstable();
        let definition: Option<(String, String)> = conn.query_first(format!("SHOW CREATE TABLE {name}")).await.unwrap();
        let what = format!("{} {rows:?} {}", sum.expect("it can be read"), definition.unwrap().1);
        content.insert(format!("table {name}"), what);
    }
    for query in OBJECTS {
        let objects: Vec<(String, String)> = conn.query(query.replace("OWN", OWN)).await.unwrap();
        content.extend(objects);
    }
    let prepared: Vec<Row> = conn.query("XA RECOVER").await.unwrap();
    content.insert("prepared".to_owned(), prepared.len().to_string());
    content
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
