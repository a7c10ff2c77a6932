//! A `MySQLCluster` under test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use mainstay_api::MySQLCluster;
use mainstay_api::status::{Health, Phase};
use mainstay_core::{GtidSet, layout};
use serde_json::Value;

use crate::env::Env;
use crate::history::{History, Verdict};
use crate::manifest::Manifest;
use crate::sql::Login;
use crate::{pods, wait};

/// How long a new cluster may take in a test; the figure to beat is the bench's.
pub const CREATE: Duration = Duration::from_mins(2);
/// How long a disturbed cluster may take to heal in a test.
pub const HEAL: Duration = Duration::from_mins(2);

/// A `MySQLCluster` under test.
#[derive(Clone)]
pub struct Cluster {
    /// The run.
    pub env: Env,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Cluster {
    /// The cluster of that name.
    #[must_use]
    pub fn at(env: &Env, namespace: &str, name: &str) -> Self {
        Self {
            env: env.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Applies a manifest as a user does: server-side, with strict validation.
    pub async fn apply(env: &Env, namespace: &str, manifest: &Manifest) -> Result<Self> {
        let name = manifest
            .value()
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let cluster = Self::at(env, namespace, name);
        let mut parameters = PatchParams::apply("e2e").force();
        parameters.field_validation = Some(kube::api::ValidationDirective::Strict);
        cluster
            .api()
            .patch(name, &parameters, &Patch::Apply(manifest.value()))
            .await
            .with_context(|| format!("failed to apply MySQLCluster {namespace}/{name}"))?;
        Ok(cluster)
    }

    /// Applies a manifest and waits until all of the cluster is in place.
    pub async fn create(env: &Env, namespace: &str, manifest: &Manifest) -> Result<Self> {
        let cluster = Self::apply(env, namespace, manifest).await?;
        cluster.healthy(CREATE).await?;
        Ok(cluster)
    }

    /// API of the cluster's kind.
    #[must_use]
    pub fn api(&self) -> Api<MySQLCluster> {
        self.of()
    }

    /// API of another kind in its namespace.
    #[must_use]
    pub fn of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.env.client.clone(), &self.namespace)
    }

    /// Its pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        self.of()
    }

    /// Label selector of everything that is its own.
    #[must_use]
    pub fn selector(&self) -> String {
        format!("mysql.mainstay.dev/cluster={}", self.name)
    }

    /// Name of an instance.
    #[must_use]
    pub fn instance(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// The object as it is.
    pub async fn get(&self) -> Result<MySQLCluster> {
        self.api()
            .get(&self.name)
            .await
            .with_context(|| format!("failed to get {}/{}", self.namespace, self.name))
    }

    /// Changes the spec by a merge patch.
    pub async fn patch(&self, spec: Value) -> Result<MySQLCluster> {
        let patch = serde_json::json!({"spec": spec});
        self.api()
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("failed to patch {}/{}", self.namespace, self.name))
    }

    /// Waits for something about the cluster object.
    pub async fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut(&MySQLCluster) -> Option<T>,
    ) -> Result<T> {
        wait::object(&self.api(), &self.name, what, limit, |seen| seen.and_then(&mut check)).await
    }

    /// Waits until the status says, of the present spec, that it serves and every instance is in place.
    pub async fn healthy(&self, limit: Duration) -> Result<MySQLCluster> {
        self.wait("waiting for Healthy", limit, |c| is_healthy(c).then(|| c.clone()))
            .await
    }

    /// Waits until a condition has a status.
    pub async fn condition(&self, type_: &str, status: &str, limit: Duration) -> Result<Condition> {
        let what = format!("waiting for {type_}={status}");
        self.wait(&what, limit, |c| {
            condition(c, type_).filter(|c| c.status == status).cloned()
        })
        .await
    }

    /// Name of the recorded primary.
    pub async fn primary(&self) -> Result<String> {
        let cluster = self.get().await?;
        let primary = cluster
            .status
            .and_then(|s| s.primary)
            .context("no primary is recorded")?;
        Ok(primary.instance)
    }

    /// Names of the other instances.
    pub async fn replicas(&self) -> Result<Vec<String>> {
        let primary = self.primary().await?;
        let n = self.get().await?.spec.replicas;
        Ok((0..n)
            .map(|i| self.instance(i))
            .filter(|name| *name != primary)
            .collect())
    }

    /// Deletes the cluster and waits until the object is gone.
    pub async fn delete(&self, limit: Duration) -> Result<()> {
        self.api()
            .delete(&self.name, &DeleteParams::background())
            .await
            .context("failed to delete the cluster")?;
        wait::object(&self.api(), &self.name, "waiting for its end", limit, |c| {
            c.is_none().then_some(())
        })
        .await
    }

    /// Waits until none of its pods is left.
    pub async fn no_pods(&self, limit: Duration) -> Result<()> {
        wait::objects(
            &self.pods(),
            &self.selector(),
            "waiting for the end of its pods",
            limit,
            |pods| pods.is_empty().then_some(()),
        )
        .await
    }

    /// Its volume claims by name.
    pub async fn claims(&self) -> Result<BTreeMap<String, PersistentVolumeClaim>> {
        let parameters = kube::api::ListParams::default().labels(&self.selector());
        let claims = self
            .of::<PersistentVolumeClaim>()
            .list(&parameters)
            .await
            .context("failed to list claims")?;
        Ok(claims
            .items
            .into_iter()
            .filter_map(|c| Some((c.metadata.name.clone()?, c)))
            .collect())
    }

    /// Its StatefulSet.
    pub async fn stateful_set(&self) -> Result<StatefulSet> {
        self.of::<StatefulSet>()
            .get(&self.name)
            .await
            .context("failed to get the StatefulSet")
    }

    /// The values of one of its Secrets, for example `app`.
    pub async fn secret(&self, suffix: &str) -> Result<BTreeMap<String, String>> {
        let name = format!("{}-{suffix}", self.name);
        let secret: Secret = self
            .of()
            .get(&name)
            .await
            .with_context(|| format!("failed to get Secret {name}"))?;
        let data = secret.data.unwrap_or_default();
        Ok(data
            .into_iter()
            .map(|(k, v)| (k, String::from_utf8_lossy(&v.0).into_owned()))
            .collect())
    }

    /// Address of one of its Services, for example `primary`.
    pub async fn service(&self, suffix: &str) -> Result<IpAddr> {
        let name = format!("{}-{suffix}", self.name);
        let service: Service = self
            .of()
            .get(&name)
            .await
            .with_context(|| format!("failed to get Service {name}"))?;
        let address = service
            .spec
            .and_then(|s| s.cluster_ip)
            .with_context(|| format!("{name} has no address"))?;
        address
            .parse()
            .with_context(|| format!("{name} has the address {address}"))
    }

    /// Address of a pod.
    pub async fn pod_address(&self, pod: &str) -> Result<IpAddr> {
        let pod_object = self
            .pods()
            .get(pod)
            .await
            .with_context(|| format!("failed to get pod {pod}"))?;
        let address = pod_object
            .status
            .and_then(|s| s.pod_ip)
            .with_context(|| format!("{pod} has no address"))?;
        address
            .parse()
            .with_context(|| format!("{pod} has the address {address}"))
    }

    /// Name of the node that an instance runs on.
    pub async fn node_of(&self, instance: &str) -> Result<String> {
        let pod = self
            .pods()
            .get(instance)
            .await
            .with_context(|| format!("failed to get pod {instance}"))?;
        let node = pod.spec.and_then(|s| s.node_name);
        node.with_context(|| format!("{instance} has no node"))
    }

    /// The application's login through the primary Service, verified by the CA and the Service's name.
    pub async fn app(&self) -> Result<Login> {
        let secret = self.secret("app").await?;
        let value = |key: &str| {
            secret
                .get(key)
                .cloned()
                .with_context(|| format!("Secret -app has no {key}"))
        };
        self.login(
            "primary",
            value("username")?,
            value("password")?,
            Some("app".to_owned()),
        )
        .await
    }

    /// The DBA's login through the primary Service.
    pub async fn root(&self) -> Result<Login> {
        let secret = self.secret("root").await?;
        let password = secret
            .get("password")
            .cloned()
            .context("Secret -root has no password")?;
        self.login("primary", "root".to_owned(), password, None).await
    }

    /// The same database for a client that holds every privilege but SHUTDOWN.
    pub async fn privileged(&self) -> Result<Login> {
        let mut login = self.root().await?;
        login.database = Some("app".to_owned());
        Ok(login)
    }

    async fn login(&self, service: &str, user: String, password: String, database: Option<String>) -> Result<Login> {
        let tls = self.secret("server-tls").await?;
        let ca = tls
            .get("ca.crt")
            .cloned()
            .context("Secret -server-tls has no ca.crt")?
            .into_bytes();
        let name = format!("{}-{service}.{}.svc", self.name, self.namespace);
        let address = self.service(service).await?;
        Ok(Login {
            address,
            port: 3306,
            user,
            password,
            database,
            tls: Some((ca, name)),
        })
    }

    /// Waits until the cluster serves again in fact: Healthy, a write through the primary Service succeeds, and every
    /// instance has it.
    pub async fn serves(&self, limit: Duration) -> Result<()> {
        self.healthy(limit).await?;
        let login = self.app().await?;
        let marker = jiff::Timestamp::now().as_nanosecond().to_string();
        let text = marker.as_str();
        let login_ref = &login;
        wait::eventually("writing through the primary Service", limit, || async move {
            let mut client = login_ref.connect().await?;
            client
                .execute("CREATE TABLE IF NOT EXISTS marker (at VARCHAR(40) PRIMARY KEY)")
                .await?;
            client
                .execute(&format!("INSERT IGNORE INTO marker VALUES ('{text}')"))
                .await
        })
        .await?;
        for ordinal in 0..self.get().await?.spec.replicas {
            let pod = self.instance(ordinal);
            let pod = pod.as_str();
            wait::eventually(&format!("reading the row on {pod}"), limit, || async move {
                let mut client = login_ref.at(self.pod_address(pod).await?).connect().await?;
                let n: u64 = client
                    .row(&format!("SELECT COUNT(*) FROM marker WHERE at = '{text}'"))
                    .await?;
                ensure!(n == 1, "{pod} does not have the row");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the primary says that everything is archived that it has executed; what that is.
    pub async fn archived(&self, limit: Duration) -> Result<GtidSet> {
        wait::eventually("waiting until everything is archived", limit, || async move {
            let primary = self.primary().await?;
            let status = [layout::BINARY, "instance", "status", "-o", "json"];
            let status = pods::exec(&self.pods(), &primary, pods::MYSQL, &status).await?;
            let status: Value = serde_json::from_str(&status)?;
            let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str);
            ensure!(text("/archive/behind") == Some(""), "{:?}", status.get("archive"));
            let executed = text("/executed").unwrap_or_default();
            executed.parse().context("failed to read what the primary has executed")
        })
        .await
    }

    /// Everything in the databases of people, as text: definition, checksum and rows of each table.
    pub async fn content(login: &Login) -> Result<BTreeMap<String, String>> {
        let mut client = login.connect().await?;
        let tables: Vec<String> = client
            .rows(
                "SELECT CONCAT('`', TABLE_SCHEMA, '`.`', TABLE_NAME, '`') FROM information_schema.TABLES \
                 WHERE TABLE_TYPE='BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql','sys','performance_schema')",
            )
            .await?;
        let mut content = BTreeMap::new();
        for table in tables {
            let (_, sum): (String, Option<u64>) = client.row(&format!("CHECKSUM TABLE {table} EXTENDED")).await?;
            let (_, definition): (String, String) = client.row(&format!("SHOW CREATE TABLE {table}")).await?;
            let rows: Vec<mysql_async::Row> = client.rows(&format!("SELECT * FROM {table} ORDER BY 1")).await?;
            let rows: Vec<String> = rows.into_iter().map(|row| format!("{:?}", row.unwrap())).collect();
            content.insert(table, format!("{sum:?} {definition} {}", rows.join("\n")));
        }
        Ok(content)
    }

    /// Compares what a writer was told with what every instance holds.
    pub async fn check(&self, history: &History, table: &str) -> Result<()> {
        let login = self.app().await?;
        let set: String = login
            .connect()
            .await?
            .variable("gtid_executed")
            .await?
            .replace('\n', "");
        for ordinal in 0..self.get().await?.spec.replicas {
            let pod = self.instance(ordinal);
            let mut client = login.at(self.pod_address(&pod).await?).connect().await?;
            client.wait_for_gtids(&set, 30).await?;
            let rows: BTreeSet<u64> = client.ids(table).await?;
            let verdict: Verdict = history.check(&rows);
            ensure!(
                verdict.is_clean(),
                "{pod}: of {} acknowledged writes {} are lost ({:?}…); {} rows are foreign; the client saw: {:?}",
                history.acknowledged.len(),
                verdict.lost.len(),
                verdict.lost.iter().take(10).collect::<Vec<_>>(),
                verdict.foreign.len(),
                history.errors,
            );
        }
        Ok(())
    }
}

/// Whether the status says, of the present spec, that it serves and every instance is in place.
#[must_use]
pub fn is_healthy(cluster: &MySQLCluster) -> bool {
    let n = cluster.spec.replicas;
    cluster.status.as_ref().is_some_and(|s| {
        s.observed_generation == cluster.metadata.generation
            && s.phase == Some(Phase::Running)
            && s.health == Some(Health::Healthy)
            && s.ready_replicas == Some(n)
    })
}

/// A condition of the present generation.
#[must_use]
pub fn condition<'a>(cluster: &'a MySQLCluster, type_: &str) -> Option<&'a Condition> {
    let current = cluster.metadata.generation;
    let status = cluster.status.as_ref()?;
    status
        .conditions
        .iter()
        .find(|c| c.type_ == type_ && c.observed_generation == current)
}
