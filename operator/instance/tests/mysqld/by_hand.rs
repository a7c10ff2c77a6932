//! docs/backup-format.md, followed to the letter: the page's own commands, with the programs that it names, bring back what was
//! stored, and nothing that never happened.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use mainstay_core::GtidSet;
use mainstay_core::backup::BackupId;
use mainstay_store::archive::PrivateKey;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use secrecy::ExposeSecret as _;
use tokio::process::Command;

use crate::logical::Dumped;
use crate::restores::{Succeeded, succeeded};
use crate::support::content::content;
use crate::support::everything::assert_same;
use crate::support::store::Stored;
use crate::support::{Cluster, fast_directory, show_logs, write};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backup-format.md");
/// The backup of the page's examples.
const EXAMPLE: &str = "20261130t073000z-57bcae98";
const PASSWORD: &str = "my own $ecret";

/// What is shown as code below a heading, block by block.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let section = page
        .split_once(&format!("\n### {heading}\n"))
        .expect("the page has it")
        .1;
    let section = section.split("\n#").next().unwrap();
    let mut blocks = vec![String::new()];
    for line in section.lines() {
        match line.strip_prefix("    ") {
            Some(code) => {
                let block = blocks.last_mut().unwrap();
                block.push_str(code);
                block.push('\n');
            }
            None if blocks.last().unwrap().is_empty() || line.is_empty() => {}
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn executable(path: &Path, text: &str) {
    write(path, text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The programs of the image, by their names: as they are on a machine on which they are installed. There, an account `mysql`
/// runs them, too.
pub(crate) fn install(into: &Path, cluster: &Cluster) {
    let quote = |words: &[OsString]| {
        let words = words.iter().map(|word| format!("'{}'", word.to_str().unwrap()));
        words.collect::<Vec<_>>().join(" ")
    };
    let programs = &cluster.nodes[0].config.programs;
    let (loader, mysqld) = programs.mysqld.split_at(programs.mysqld.len() - 1);
    let server = format!(
        "#!/bin/bash\nfirst=$1; shift\nfor word; do shift; [ \"$word\" = --user=mysql ] || set -- \"$@\" \"$word\"; done\n\
         exec {} {} \"$first\" {} \"$@\"\n",
        quote(loader),
        quote(mysqld),
        quote(&programs.mysqld_args),
    );
    executable(&into.join("mysqld"), &server);
    let sbin = Path::new(&mysqld[0]).parent().unwrap();
    for client in ["mysql", "mysqlbinlog"] {
        let program = sbin.parent().unwrap().join("bin").join(client);
        let text = format!("#!/bin/sh\nexec {} '{}' \"$@\"\n", quote(loader), program.display());
        executable(&into.join(client), &text);
    }
    executable(&into.join("chown"), "#!/bin/sh\n[ \"$*\" = '-R mysql: data' ]\n");
}

/// Somebody with a copy of the cluster's folder, a key, and the programs.
struct Person {
    files: tempfile::TempDir,
    _shell: tokio::process::Child,
}

impl Person {
    /// Carries out a script, and returns when it is through; what it started runs on.
    async fn begins(
        cluster: &Cluster,
        stored: &Stored,
        backup: &BackupId,
        key: &PrivateKey,
        init: &str,
        script: &str,
    ) -> Self {
        let files = tempfile::tempdir_in(fast_directory()).unwrap();
        let folder = files.path().join("shop");
        // What any S3 client does.
        let from = stored.gateway.file(&stored.cluster.backup_manifest(backup));
        let from = from.ancestors().nth(3).unwrap();
        let copied = Command::new("cp")
            .arg("-r")
            .args([from, &folder])
            .status()
            .await
            .unwrap();
        assert!(copied.success());
        write(&folder.join("key.txt"), key.to_text().expose_secret());
        write(&folder.join("init.sql"), init);
        install(&files.path().join("bin"), cluster);
        println!("{script}");
        let path = format!(
            "{}:{}",
            files.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        let mut shell = Command::new("bash")
            .args(["-c", &format!("{script}\ntouch done\nwait\n")])
            .current_dir(&folder)
            .env("PATH", path)
            .env("PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let done = folder.join("done");
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        while !done.exists() {
            let ended = shell.try_wait().unwrap();
            let log = || std::fs::read_to_string(files.path().join("log")).unwrap();
            assert!(ended.is_none(), "{ended:?}\n{}", log());
            assert!(std::time::Instant::now() < deadline, "{}", log());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Self { files, _shell: shell }
    }

    async fn root(&self) -> Conn {
        let socket = self.files.path().join("shop/s");
        let login = OptsBuilder::default()
            .socket(socket.to_str().map(str::to_owned))
            .user(Some("root"))
            .pass(Some(PASSWORD));
        Conn::new(login).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3; age, jq, tar, zstd"]
async fn a_person_with_the_page_alone_brings_everything_back() {
    show_logs();
    let key = PrivateKey::generate();
    let Succeeded {
        stored,
        backup,
        content: expected,
        executed,
        lost,
    } = succeeded(Some(key.clone())).await;
    let page = std::fs::read_to_string(PAGE).unwrap();
    let [unpack, init, boot] = &blocks(&page, "Restoring by hand")[..] else {
        panic!("the page has other blocks: {:#?}", blocks(&page, "Restoring by hand"))
    };
    let [replay] = &blocks(&page, "Replaying by hand")[..] else {
        panic!("the page has other blocks: {:#?}", blocks(&page, "Replaying by hand"))
    };
    assert!(unpack.contains(EXAMPLE) && init.contains("'…'"));

    let cluster = Cluster::prepare(1);
    let script = [&unpack.replace(EXAMPLE, backup.as_str()), boot.as_str(), replay].join("\n");
    let init = init.replace('…', PASSWORD);
    let person = Person::begins(&cluster, &stored, &backup, &key, &init, &script).await;
    let mut root = person.root().await;
    assert_eq!(content(&mut root).await, expected);
    let reached: Option<String> = root.query_first("SELECT @@GLOBAL.gtid_executed").await.unwrap();
    let reached: GtidSet = reached.unwrap().parse().unwrap();
    assert!(
        reached.contains(&executed) && !reached.contains_gtid(&lost),
        "{reached}"
    );
    assert_eq!(reached, executed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3; age, jq, tar, zstd"]
async fn a_person_with_the_page_alone_loads_the_statements() {
    show_logs();
    let key = PrivateKey::generate();
    let Dumped {
        source, stored, backup, ..
    } = Dumped::new(Some(key.clone())).await;
    let page = std::fs::read_to_string(PAGE).unwrap();
    let heading = "Restoring statements by hand";
    let [load, password] = &blocks(&page, heading)[..] else {
        panic!("the page has other blocks: {:#?}", blocks(&page, heading))
    };
    let [replay] = &blocks(&page, "Replaying by hand")[..] else {
        panic!("the page has other blocks: {:#?}", blocks(&page, "Replaying by hand"))
    };
    assert!(load.contains(EXAMPLE));
    let cluster = Cluster::prepare(1);
    // The time zones of its events.
    let load = load.replace("for file in dump", &format!("{} for file in dump", zones(&cluster)));
    // As a shell reads it in double quotes.
    let password = password.replace('…', &PASSWORD.replace('$', "\\$"));
    let script = [&load.replace(EXAMPLE, backup.as_str()), replay.as_str(), &password].join("\n");
    let person = Person::begins(&cluster, &stored, &backup, &key, "", &script).await;
    let mut root = person.root().await;
    assert_same(&content(&mut root).await, &source.points.last().unwrap().content);
    let reached: Option<String> = root.query_first("SELECT @@GLOBAL.gtid_executed").await.unwrap();
    let reached: GtidSet = reached.unwrap().parse().unwrap();
    assert!(reached.contains_gtid(&source.points.last().unwrap().gtid), "{reached}");
}

/// `mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql`, with the image's program and files.
fn zones(cluster: &Cluster) -> String {
    let programs = &cluster.nodes[0].config.programs;
    let words = programs.tzinfo.iter().map(|word| word.to_str().unwrap().to_owned());
    let words = words.chain([programs.zoneinfo.display().to_string()]);
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let words = words.join(" ");
    format!("{words} 2>/dev/null | sed 's/Local time zone must be set--see zic manual page/FCTY/' | sql mysql;")
}
