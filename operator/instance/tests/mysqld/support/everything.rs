//! A server with one of everything that can be lost on the way through statements, and a look at all of it.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};

use super::content::{Content, content};

/// The schema whose name is hardest to write.
const ODD: &str = "`b c``;;`";

/// What is made, in this order and in one session.
const DEFINITIONS: &[&str] = &[
    "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO', time_zone='+05:00'",
    "CREATE DATABASE a CHARACTER SET latin1 COLLATE latin1_german1_ci",
    "CREATE DATABASE `b c``;;` DEFAULT ENCRYPTION='N'",
    "CREATE DATABASE vacant",
    "CREATE TABLE a.types (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, i TINYINT, z INT(5) UNSIGNED ZEROFILL, \
     d DECIMAL(65,30), f FLOAT, g FLOAT(7,3), x DOUBLE, y DOUBLE(12,2), b BIT(10), da DATE, ti TIME(3), dt DATETIME(6), \
     ts TIMESTAMP(6) NULL, ye YEAR, bi BINARY(4), vb VARBINARY(100), bl BLOB, c CHAR(10), \
     v VARCHAR(100) CHARACTER SET utf8mb4, l VARCHAR(50) CHARACTER SET latin1, k VARCHAR(50) CHARACTER SET gbk, \
     u VARCHAR(50) CHARACTER SET utf16, e ENUM('a','b;;',''), s SET('x','y'), j JSON, ge GEOMETRY, po POINT SRID 4326, \
     ve VECTOR(3), vi INT GENERATED ALWAYS AS (i*2) VIRTUAL, st INT GENERATED ALWAYS AS (i*3) STORED, \
     inv INT DEFAULT 7 INVISIBLE, ex VARCHAR(40) DEFAULT (UUID()), up TIMESTAMP DEFAULT CURRENT_TIMESTAMP \
     ON UPDATE CURRENT_TIMESTAMP) COMMENT='it''s;; ä\u{1F600}'",
    "INSERT INTO a.types (id, i, z, d, f, g, x, y, b, da, ti, dt, ts, ye, bi, vb, bl, c, v, l, k, u, e, s, j, ge, po, ve, inv) \
     VALUES (0, -128, 42, '12345678901234567890123456789012345.123456789012345678901234567890', 1/3, 1234.567, 1/3, 1e9/3, \
     b'1000000001', '0000-00-00', '-838:59:59', '0000-00-00 00:00:00.000000', '2026-03-29 06:30:00.123456', '0000', \
     0x00FF, 0x00270A5C, 0xE4F6, 'x ', 'ä''\"\\\\\\n\\r\\0\\Z;;\u{1F600}', 'äöü', '中文', 'ä\u{1F600}', '', 'x,y', \
     '{\"a\": [1, 2.5, null, \"\\\\\"ä\\\\\"\"], \"b\": 1e100}', ST_GeomFromText('POINT(1 2)'), \
     ST_GeomFromText('POINT(1 2)', 4326), TO_VECTOR('[1,-2.5,3e10]'), NULL)",
    "INSERT INTO a.types (id, f, g, x, e, vb, v) VALUES (5, -0e0, -0e0, -0e0, 'not one of them', '', '')",
    "INSERT INTO a.types (f, x) VALUES (16777217, 1.7976931348623157e308), (1e-38, 5e-324), (3.4028234e38, 0.1)",
    "CREATE TABLE a.parts (id INT, d DATE, KEY (id)) PARTITION BY RANGE (YEAR(d)) \
     (PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "INSERT INTO a.parts VALUES (1,'1999-01-01'),(2,'2026-01-01'),(2,'2026-01-01')",
    "SET SESSION sql_generate_invisible_primary_key=1",
    "CREATE TABLE a.hidden_key (v INT)",
    "INSERT INTO a.hidden_key VALUES (7),(7),(8)",
    "DELETE FROM a.hidden_key WHERE v=8",
    "SET SESSION sql_generate_invisible_primary_key=0",
    "CREATE TABLE a.heap (v VARCHAR(10), n INT)",
    "INSERT INTO a.heap VALUES ('same',1),('same',1),(NULL,NULL)",
    "CREATE TABLE a.parent (id INT PRIMARY KEY, c INT)",
    "CREATE TABLE a.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a.parent (id) ON DELETE CASCADE)",
    "INSERT INTO a.parent VALUES (1,NULL)",
    "INSERT INTO a.child VALUES (10,1)",
    "UPDATE a.parent SET c=10",
    "ALTER TABLE a.parent ADD FOREIGN KEY (c) REFERENCES a.child (id)",
    "CREATE TABLE `b c``;;`.`t'\"x\\ä` (`c``o'l` INT PRIMARY KEY, `select` TEXT, FOREIGN KEY (`c``o'l`) REFERENCES a.parent (id))",
    "INSERT INTO `b c``;;`.`t'\"x\\ä` VALUES (1,'DELIMITER ;;\n;;\n')",
    "CREATE TABLE a.indexed (id INT PRIMARY KEY, t TEXT, FULLTEXT (t), KEY half ((id DIV 2)), KEY invisible_one (id) INVISIBLE, \
     CONSTRAINT positive CHECK (id > 0), CONSTRAINT small CHECK (id < 10) NOT ENFORCED) ROW_FORMAT=COMPRESSED",
    "INSERT INTO a.indexed VALUES (20,'a text')",
    "CREATE TABLESPACE own_space ADD DATAFILE 'own_space.ibd'",
    "CREATE TABLE a.spaced (id INT PRIMARY KEY) TABLESPACE own_space",
    "INSERT INTO a.spaced VALUES (1)",
    "CREATE TABLE a.counted (id INT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT=4711",
    "CREATE TABLE a.vacant (id INT PRIMARY KEY)",
    "CREATE TABLE a.large (id INT PRIMARY KEY, b LONGBLOB)",
    "INSERT INTO a.large VALUES (1, REPEAT(RANDOM_BYTES(1000), 3000)), (2, ''), (3, NULL), (4, REPEAT(RANDOM_BYTES(100), 8000))",
    "CREATE TABLE a.many (id INT PRIMARY KEY, v VARCHAR(1000), KEY (id, v(10)))",
    "SET SESSION cte_max_recursion_depth=10000",
    "INSERT INTO a.many WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<8000) \
     SELECT i, REPEAT(CONCAT('row ', i, ';;\n'), 60) FROM n",
    // Code, in sessions of all kinds.
    // A view rests on others, and on functions, whose definer is an account of the same server.
    "CREATE USER 'viewer'@'%'",
    "GRANT SELECT, EXECUTE ON a.* TO 'viewer'@'%'",
    "CREATE DEFINER='nobody'@'nowhere' FUNCTION a.unused() RETURNS INT DETERMINISTIC RETURN 1",
    "CREATE DEFINER='viewer'@'%' FUNCTION a.f(x INT) RETURNS INT DETERMINISTIC RETURN x+1",
    "CREATE DEFINER='viewer'@'%' VIEW a.v_z AS SELECT id, i FROM a.types",
    "CREATE DEFINER='viewer'@'%' SQL SECURITY DEFINER VIEW a.v_a AS SELECT a.f(id) AS n, i FROM a.v_z",
    "CREATE ALGORITHM=TEMPTABLE VIEW `b c``;;`.`v;;` AS SELECT * FROM a.v_a",
    "CREATE DEFINER='nobody'@'nowhere' VIEW a.v_orphan AS SELECT * FROM a.v_z",
    "CREATE VIEW a.v_checked AS SELECT id FROM a.vacant WHERE id>5 WITH CASCADED CHECK OPTION",
    "SET SESSION sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES', collation_connection=utf8mb4_bin",
    "CREATE PROCEDURE \"b c`;;\".\"p;;\"() SQL SECURITY INVOKER COMMENT 'a;;b' BEGIN\n/* ;; */ SELECT 'x\\';\n-- done ;;\nEND -- at last",
    "SET SESSION sql_mode='', collation_connection=utf8mb4_0900_ai_ci",
    "CREATE TRIGGER a.second BEFORE INSERT ON a.parent FOR EACH ROW SET NEW.c=NULL",
    "CREATE DEFINER='nobody'@'nowhere' TRIGGER a.first BEFORE INSERT ON a.parent FOR EACH ROW PRECEDES second SET @x=1",
    "CREATE TRIGGER a.after_all AFTER DELETE ON a.parent FOR EACH ROW BEGIN SET @y=1; SET @z=';;'; END",
    "CREATE TRIGGER a.not_while_loading BEFORE INSERT ON a.many FOR EACH ROW SET NEW.v='of the trigger'",
    "SET SESSION time_zone='Europe/Berlin'",
    "CREATE EVENT a.off ON SCHEDULE EVERY 1 HOUR STARTS '2026-01-01 03:00:00' ENDS '2099-01-01 00:00:00' \
     ON COMPLETION PRESERVE DISABLE COMMENT 'ä;;' DO DELETE FROM a.vacant",
    "CREATE DEFINER='nobody'@'nowhere' EVENT a.once ON SCHEDULE AT '2099-01-01 00:00:00' DO SELECT 1",
    "SET SESSION timestamp=1500000000",
    "CREATE EVENT a.long_ago ON SCHEDULE AT '2019-01-01 00:00:00' DISABLE DO SELECT 1",
    "SET SESSION timestamp=DEFAULT, time_zone='+00:00'",
    // A collation that the schema had once.
    "CREATE DATABASE moved COLLATE utf8mb4_bin",
    "CREATE PROCEDURE moved.p() SELECT 'x'",
    "ALTER DATABASE moved COLLATE utf8mb4_0900_ai_ci",
    // Accounts.
    "CREATE ROLE reader, 'admin'@'localhost'",
    "CREATE USER 'shopper'@'%' IDENTIFIED WITH caching_sha2_password BY 'first'",
    "ALTER USER 'shopper'@'%' IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD",
    "CREATE USER 'odd''us`er'@'10.0.0.0/255.255.255.0' IDENTIFIED BY 'x' REQUIRE X509 WITH MAX_QUERIES_PER_HOUR 7 \
     PASSWORD EXPIRE INTERVAL 90 DAY FAILED_LOGIN_ATTEMPTS 3 PASSWORD_LOCK_TIME 2 ACCOUNT LOCK ATTRIBUTE '{\"team\": \"ä\"}'",
    "GRANT reader TO 'shopper'@'%' WITH ADMIN OPTION",
    "GRANT 'admin'@'localhost' TO reader",
    "SET DEFAULT ROLE reader TO 'shopper'@'%'",
    "GRANT SELECT ON *.* TO reader",
    "GRANT BACKUP_ADMIN, SYSTEM_VARIABLES_ADMIN ON *.* TO 'admin'@'localhost' WITH GRANT OPTION",
    "GRANT ALL ON `a\\_%`.* TO 'shopper'@'%'",
    "GRANT SELECT (id, v), INSERT ON a.types TO 'shopper'@'%' WITH GRANT OPTION",
    "GRANT EXECUTE ON FUNCTION a.f TO 'shopper'@'%'",
    "INSERT INTO mysql.proxies_priv (Host, User, Proxied_host, Proxied_user, With_grant, Grantor) \
     VALUES ('%','shopper','','reader',0,'x@y')",
    "CREATE TABLE a.gone (id INT)",
    "GRANT SELECT (id), UPDATE ON a.gone TO 'shopper'@'%'",
    "DROP TABLE a.gone",
    "FLUSH PRIVILEGES",
];

/// Makes one of everything.
pub(crate) async fn make(conn: &mut Conn) {
    for statement in DEFINITIONS {
        if let Err(error) = conn.query_drop(*statement).await {
            panic!("{statement}: {error}");
        }
    }
    conn.query_drop("SET NAMES latin1").await.unwrap();
    // Each letter is one byte.
    let latin1: Vec<u8> = "CREATE PROCEDURE a.p() SELECT 'äöü;;'"
        .chars()
        .map(|c| u8::try_from(c).unwrap())
        .collect();
    conn.query_drop(latin1).await.unwrap();
    conn.query_drop("SET NAMES utf8mb4").await.unwrap();
}

/// Tables of rights, and who has them; not Mainstay's own accounts, nor `root`, whose password is that of the new cluster.
const GRANTS: [(&str, &str); 10] = [
    ("user", "User"),
    ("db", "User"),
    ("tables_priv", "User"),
    ("columns_priv", "User"),
    ("procs_priv", "User"),
    ("proxies_priv", "User"),
    ("global_grants", "USER"),
    ("role_edges", "TO_USER"),
    ("default_roles", "USER"),
    ("password_history", "User"),
];

/// What can be shown, by kind: the query that lists schema and name, and the columns of SHOW CREATE that depend on the time.
const SHOWN: [(&str, &str, Option<usize>); 5] = [
    (
        "VIEW",
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS",
        None,
    ),
    (
        "FUNCTION",
        "SELECT ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_TYPE='FUNCTION'",
        None,
    ),
    (
        "PROCEDURE",
        "SELECT ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_TYPE='PROCEDURE'",
        None,
    ),
    (
        "TRIGGER",
        "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS",
        Some(6),
    ),
    (
        "EVENT",
        "SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS",
        None,
    ),
];

/// All that [`content`] tells, and beyond it every SHOW CREATE, the rights row by row, and what a table hides.
pub(crate) async fn details(conn: &mut Conn) -> Content {
    let session = "SET SESSION time_zone='+00:00', sql_mode='', character_set_results=utf8mb4";
    conn.query_drop(session).await.unwrap();
    let mut details = content(conn).await;
    for (kind, list, skip) in SHOWN {
        let names: Vec<(String, String)> = conn.query(list).await.unwrap();
        for (schema, name) in names.into_iter().filter(|(schema, _)| schema != "sys") {
            let quoted = [&schema, &name]
                .map(|name| format!("`{}`", name.replace('`', "``")))
                .join(".");
            let row: Option<Row> = conn.query_first(format!("SHOW CREATE {kind} {quoted}")).await.unwrap();
            let values = row.unwrap().unwrap().into_iter().enumerate();
            let values: Vec<_> = values
                .filter(|(at, _)| Some(*at) != skip)
                .map(|(_, value)| value)
                .collect();
            details.insert(format!("shown {kind} {quoted}"), format!("{values:?}"));
        }
    }
    let databases: Vec<String> = conn
        .query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        .await
        .unwrap();
    for database in databases {
        let quoted = format!("`{}`", database.replace('`', "``"));
        let shown: Option<(String, String)> = conn
            .query_first(format!("SHOW CREATE DATABASE {quoted}"))
            .await
            .unwrap();
        details.insert(format!("shown database {quoted}"), shown.unwrap().1);
    }
    for (table, user) in GRANTS {
        let which = format!("{user} NOT LIKE 'mainstay%' AND {user} NOT LIKE 'mysql.%' AND {user}<>'root'");
        let rows: Vec<Row> = conn
            .query(format!("SELECT * FROM mysql.{table} WHERE {which}"))
            .await
            .unwrap();
        let mut rows: Vec<String> = rows.into_iter().map(|row| format!("{:?}", row.unwrap())).collect();
        rows.sort_unstable();
        details.insert(format!("rights {table}"), rows.join("\n"));
    }
    let triggers = "SELECT TRIGGER_NAME, ACTION_ORDER, ACTION_TIMING FROM information_schema.TRIGGERS \
                    WHERE TRIGGER_SCHEMA<>'sys' ORDER BY 1";
    let order: Vec<(String, u32, String)> = conn.query(triggers).await.unwrap();
    details.insert("order of triggers".to_owned(), format!("{order:?}"));
    let hidden =
        "SELECT inv, ex, vi, st, HEX(CAST(k AS BINARY)), HEX(CAST(u AS BINARY)), CAST(f AS DOUBLE), e+0 FROM a.types";
    let hidden: Vec<Row> = conn.query(hidden).await.unwrap();
    details.insert(
        "hidden columns".to_owned(),
        format!("{:?}", hidden.into_iter().map(Row::unwrap).collect::<Vec<_>>()),
    );
    let keys: Vec<(u64, i32)> = conn.query("SELECT my_row_id, v FROM a.hidden_key").await.unwrap();
    details.insert("hidden keys".to_owned(), format!("{keys:?}"));
    let odd: Option<u64> = conn
        .query_first(format!("SELECT COUNT(*) FROM {ODD}.`v;;`"))
        .await
        .ok()
        .flatten();
    details.insert("rows of a view without its definer".to_owned(), format!("{odd:?}"));
    details
}

/// A column that was made by a statement that says its collation is shown with its character set, too: it means the same.
fn normal(text: &str) -> String {
    text.replace(
        " CHARACTER SET latin1 COLLATE latin1_german1_ci",
        " COLLATE latin1_german1_ci",
    )
}

/// What is another one, in words that fit on a screen.
#[track_caller]
pub(crate) fn assert_same(found: &Content, expected: &Content) {
    let cut = |text: Option<String>| text.map(|text| text.chars().take(1500).collect::<String>());
    let names: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let mut differences = 0;
    for name in names {
        let (found, expected) = (
            found.get(name).map(|text| normal(text)),
            expected.get(name).map(|text| normal(text)),
        );
        if found != expected {
            differences += 1;
            println!("--- {name}\nfound    {:?}\nexpected {:?}", cut(found), cut(expected));
        }
    }
    assert_eq!(differences, 0, "see above");
}
