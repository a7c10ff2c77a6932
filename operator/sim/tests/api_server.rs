//! The fake API server against `kube::Api` and kube's runtime: what the simulation rests on.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use mainstay_sim::Clock;
use mainstay_sim::kubernetes::faults::RequestInfo;
use mainstay_sim::kubernetes::{DeleteOptions, Effect, Key, Resource, Rule, Server, WatchFault};
use serde_json::{Value, json};

fn server() -> (Server, Client) {
    let server = Server::new(Clock::new(), 1);
    let client = server.client("test");
    (server, client)
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data: BTreeMap<_, _> = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut object = ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    };
    object.metadata.name = Some(name.to_owned());
    object
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API server: {other:?}"),
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test(start_paused = true)]
async fn create_read_list_and_delete() {
    let (_, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let made = api
        .create(&PostParams::default(), &config_map("a", &[("k", "v")]))
        .await
        .unwrap();
    assert!(made.uid().is_some() && made.resource_version().is_some() && made.creation_timestamp().is_some());
    let again = api
        .create(&PostParams::default(), &config_map("a", &[]))
        .await
        .unwrap_err();
    assert_eq!(code(&again), 409);
    assert_eq!(api.get("a").await.unwrap(), made);
    assert_eq!(code(&api.get("b").await.unwrap_err()), 404);
    assert_eq!(api.get_opt("b").await.unwrap(), None);

    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let refused = elsewhere
        .create(&PostParams::default(), &config_map("a", &[]))
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 404, "the namespace does not exist");

    let wrong = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("x".into()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    assert_eq!(code(&api.delete("a", &wrong).await.unwrap_err()), 409);
    let right = DeleteParams {
        preconditions: Some(Preconditions {
            uid: made.uid(),
            resource_version: made.resource_version(),
        }),
        ..DeleteParams::default()
    };
    api.delete("a", &right).await.unwrap();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_and_show_one_version() {
    let (_, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&PostParams::default(), &config_map(name, &[]))
            .await
            .unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(
        first.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(),
        ["a", "b"]
    );
    api.delete("d", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let second = api
        .list(&ListParams::default().limit(10).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(
        second.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(),
        ["c", "d", "e"]
    );
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn writes_are_optimistic() {
    let (_, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let old = api
        .create(&PostParams::default(), &config_map("a", &[("k", "1")]))
        .await
        .unwrap();
    let mut first = old.clone();
    first.data.as_mut().unwrap().insert("k".into(), "2".into());
    let changed = api.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_eq!(
        code(&api.replace("a", &PostParams::default(), &old).await.unwrap_err()),
        409
    );
    let unchanged = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(
        unchanged.resource_version(),
        changed.resource_version(),
        "a write that changes nothing makes no version"
    );

    let merge = json!({"data": {"k": null, "l": "3"}});
    let merged = api
        .patch("a", &PatchParams::default(), &Patch::Merge(merge))
        .await
        .unwrap();
    assert_eq!(merged.data.unwrap(), BTreeMap::from([("l".to_owned(), "3".to_owned())]));
    let test: json_patch::Patch = serde_json::from_value(
        json!([{"op": "test", "path": "/data/l", "value": "4"}, {"op": "remove", "path": "/data/l"}]),
    )
    .unwrap();
    assert_eq!(
        code(
            &api.patch("a", &PatchParams::default(), &Patch::<()>::Json(test))
                .await
                .unwrap_err()
        ),
        422
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_separate() {
    let (_, client) = server();
    let api: Api<mainstay_api::MySQLCluster> = Api::namespaced(client, "default");
    let body: mainstay_api::MySQLCluster = serde_json::from_value(json!({
        "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster", "metadata": {"name": "shop"},
        "spec": {"replicas": 3, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}}, "status": {"ready": "9/9"},
    }))
    .unwrap();
    let made = api.create(&PostParams::default(), &body).await.unwrap();
    assert_eq!((made.metadata.generation, made.status.clone()), (Some(1), None));

    let mut with_status = made.clone();
    with_status.spec.replicas = 5;
    with_status.status = Some(mainstay_api::MySQLClusterStatus {
        ready: Some("1/3".into()),
        ..Default::default()
    });
    let after = api
        .replace_status("shop", &PostParams::default(), &with_status)
        .await
        .unwrap();
    assert_eq!((after.spec.replicas, after.metadata.generation), (3, Some(1)));
    assert_eq!(after.status.as_ref().unwrap().ready.as_deref(), Some("1/3"));
    assert_eq!(
        code(
            &api.replace_status("shop", &PostParams::default(), &with_status)
                .await
                .unwrap_err()
        ),
        409
    );

    let mut with_spec = after;
    with_spec.spec.replicas = 5;
    with_spec.status = None;
    let last = api.replace("shop", &PostParams::default(), &with_spec).await.unwrap();
    assert_eq!((last.spec.replicas, last.metadata.generation), (5, Some(2)));
    assert!(last.status.is_some(), "a write of the spec cannot clear the status");

    let mut blind = last;
    blind.metadata.resource_version = None;
    assert_eq!(
        code(&api.replace("shop", &PostParams::default(), &blind).await.unwrap_err()),
        422
    );
}

fn stateful_set(cpu: &str, extra: bool) -> Value {
    let mut labels = json!({"app": "x"});
    if extra {
        labels["extra"] = json!("1");
    }
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "labels": labels},
        "spec": {"replicas": 3, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "mysql",
                "image": "mysql:9.7.4", "resources": {"requests": {"cpu": cpu}}, "ports": [{"containerPort": 3306}]}]}}}})
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_owns_fields_and_keeps_those_of_others() {
    let (server, client) = server();
    server.add_admission(|resource, _, object| {
        if resource.kind == "StatefulSet" {
            object["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "injected"}]);
            object["metadata"]["annotations"]["policy"] = json!("seen");
        }
        Ok(())
    });
    let api: Api<StatefulSet> = Api::namespaced(client, "default");
    let params = PatchParams::apply("mainstay").force();
    let first = api
        .patch("s", &params, &Patch::Apply(stateful_set("1000m", true)))
        .await
        .unwrap();
    assert_eq!(first.metadata.generation, Some(1));
    let spec = serde_json::to_value(first.spec.as_ref().unwrap()).unwrap();
    assert_eq!(
        spec.pointer("/template/spec/containers/0/resources/requests/cpu"),
        Some(&json!("1")),
        "canonical quantity"
    );
    assert_eq!(
        spec.pointer("/template/spec/containers/0/ports/0/protocol"),
        Some(&json!("TCP"))
    );
    assert_eq!(
        spec.pointer("/template/spec/imagePullSecrets/0/name"),
        Some(&json!("injected"))
    );

    let again = api
        .patch("s", &params, &Patch::Apply(stateful_set("1000m", false)))
        .await
        .unwrap();
    assert_eq!(again.labels().get("extra"), None, "what is no longer applied goes");
    assert_eq!(
        again.annotations().get("policy").map(String::as_str),
        Some("seen"),
        "what admission added stays"
    );
    assert_eq!(again.metadata.generation, Some(1));
    let third = api
        .patch("s", &params, &Patch::Apply(stateful_set("1000m", false)))
        .await
        .unwrap();
    assert_eq!(
        third.resource_version(),
        again.resource_version(),
        "the same again is no change"
    );

    let other = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 5}});
    let refused = api
        .patch("s", &PatchParams::apply("other"), &Patch::Apply(other))
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 409);
    let forbidden = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"serviceName": "t"}});
    assert_eq!(
        code(&api.patch("s", &params, &Patch::Apply(forbidden)).await.unwrap_err()),
        422
    );
}

#[tokio::test(start_paused = true)]
async fn owned_objects_go_with_their_owner_by_uid() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let owner = api
        .create(&PostParams::default(), &config_map("owner", &[]))
        .await
        .unwrap();
    let mut dependent = config_map("owned", &[]);
    let reference = |uid: Option<String>| OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "owner".into(),
        uid: uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    dependent.metadata.owner_references = Some(vec![reference(owner.uid())]);
    api.create(&PostParams::default(), &dependent).await.unwrap();
    dependent.metadata.name = Some("orphaned".into());
    api.create(&PostParams::default(), &dependent).await.unwrap();
    assert_eq!(server.collect_garbage(), 0);

    api.delete("owner", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config_map("owner", &[]))
        .await
        .unwrap();
    assert_eq!(
        server.collect_garbage(),
        2,
        "an owner of the same name is another owner"
    );

    let owner = api.get("owner").await.unwrap();
    dependent.metadata.owner_references = Some(vec![reference(owner.uid())]);
    api.create(&PostParams::default(), &dependent).await.unwrap();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    api.delete("owner", &orphan).await.unwrap();
    assert_eq!(server.collect_garbage(), 0);
}

#[tokio::test(start_paused = true)]
async fn namespaces_end_with_their_content() {
    let (server, client) = server();
    server.create_namespace("shop");
    let inside: Api<Secret> = Api::namespaced(client.clone(), "shop");
    inside
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap(),
        )
        .await
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let refused = inside
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": "t"}})).unwrap(),
        )
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 403);
    while server.collect_garbage() > 0 {}
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_on_a_node_are_given_time() {
    let (server, client) = server();
    let api: Api<Pod> = Api::namespaced(client, "default");
    for (name, node) in [
        ("pending", None),
        ("running", Some("node-1")),
        ("forced", Some("node-1")),
    ] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": []}});
        api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap();
    }
    api.delete("pending", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("pending").await.unwrap().is_none());
    api.delete("running", &DeleteParams::default()).await.unwrap();
    assert!(api.get("running").await.unwrap().metadata.deletion_timestamp.is_some());
    let pods = Resource::find("", "pods").unwrap();
    server
        .delete(
            &Key::new(pods, "default", "running"),
            &DeleteOptions {
                grace: Some(0),
                ..DeleteOptions::default()
            },
        )
        .unwrap();
    assert!(api.get_opt("running").await.unwrap().is_none());
    api.delete("forced", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(api.get_opt("forced").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn watches_resume_bookmark_and_expire() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let start = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    api.create(&PostParams::default(), &config_map("a", &[])).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let mut stream = Box::pin(api.watch(&WatchParams::default().timeout(90), &start).await.unwrap());
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
    assert!(
        matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Bookmark(_))),
        "after a minute"
    );
    assert!(stream.try_next().await.unwrap().is_none(), "after the timeout");
    drop(stream);
    assert_eq!(server.open_watches("test"), 0);

    server.compact();
    let mut stream = Box::pin(api.watch(&WatchParams::default(), &start).await.unwrap());
    match stream.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => assert_eq!(status.code, 410),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn watches_show_objects_through_their_selector() {
    let (_, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let start = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut stream = Box::pin(api.watch(&WatchParams::default().labels("a=1"), &start).await.unwrap());
    api.create(&PostParams::default(), &config_map("x", &[])).await.unwrap();
    for label in ["1", "2"] {
        let patch = json!({"metadata": {"labels": {"a": label}}});
        api.patch("x", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
}

/// One of what happens to the objects of a reflector, and to its watch.
async fn disturb(server: &Server, api: &Api<ConfigMap>, round: u32) {
    let name = format!("c{}", round % 7);
    match round % 5 {
        0 => drop(api.delete(&name, &DeleteParams::default()).await),
        1 => server.disconnect("reflector"),
        2 if round.is_multiple_of(3) => server.compact(),
        _ => {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"round": round.to_string()}});
            api.patch(&name, &PatchParams::apply("w").force(), &Patch::Apply(map))
                .await
                .unwrap();
        }
    }
}

/// A reflector's cache must equal the server after every kind of disturbance.
#[tokio::test(start_paused = true)]
async fn reflectors_follow_through_faults() {
    for seed in 0..8 {
        let server = Server::new(Clock::new(), seed);
        let client = server.client("reflector");
        let api: Api<ConfigMap> = Api::namespaced(server.client("writer"), "default");
        let config = if seed % 2 == 0 {
            watcher::Config::default()
        } else {
            watcher::Config::default().streaming_lists()
        };
        let (store, writer) = reflector::store();
        let stream = watcher(Api::<ConfigMap>::namespaced(client, "default"), config)
            .default_backoff()
            .reflect(writer);
        let task = tokio::spawn(stream.for_each(|_| async {}));
        server.inject_watch(WatchFault {
            hold: Duration::from_millis(30),
            merge: true,
            drop_percent: 20,
            ..WatchFault::of("reflector")
        });
        for round in 0..40_u32 {
            disturb(&server, &api, round).await;
            tokio::time::sleep(Duration::from_millis(11)).await;
        }
        server.clear_faults();
        server.compact();
        server.disconnect("reflector");
        let want = || {
            let maps = Resource::find("", "configmaps").unwrap();
            server
                .list(maps, "default")
                .iter()
                .map(|o| o["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        eventually(&format!("seed {seed}: the cache is what the server has"), || {
            let mut have: Vec<_> = store
                .state()
                .iter()
                .map(|o| (o.name_any(), o.resource_version().unwrap()))
                .collect();
            have.sort();
            have.into_iter().map(|(_, v)| v).collect::<Vec<_>>() == want()
        })
        .await;
        assert_eq!(server.open_watches("reflector"), 1, "seed {seed}");
        task.abort();
        let _ = task.await;
        assert_eq!(server.open_watches("reflector"), 0, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_against_it() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let made = secrets.clone();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        let secrets = made.clone();
        async move {
            let owner = OwnerReference {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                name: map.name_any(),
                uid: map.uid().unwrap_or_default(),
                controller: Some(true),
                ..OwnerReference::default()
            };
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"ownerReferences": [owner]},
                "stringData": {"k": map.data.as_ref().and_then(|d| d.get("k"))}});
            secrets
                .patch(&map.name_any(), &PatchParams::apply("c").force(), &Patch::Apply(secret))
                .await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let controller =
        Controller::new(api.clone(), watcher::Config::default()).owns(secrets.clone(), watcher::Config::default());
    let run = controller.run(
        reconcile,
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        Arc::new(()),
    );
    let task = tokio::spawn(run.for_each(|_| async {}));
    api.create(&PostParams::default(), &config_map("a", &[("k", "v")]))
        .await
        .unwrap();
    let exists = |server: &Server| {
        !server
            .list(Resource::find("", "secrets").unwrap(), "default")
            .is_empty()
    };
    eventually("the controller made the Secret", || exists(&server)).await;
    secrets.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the controller made it again", || exists(&server)).await;
    let secret = secrets.get("a").await.unwrap();
    assert_eq!(secret.data.unwrap().get("k").unwrap().0, b"v");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn faults_hit_the_requests_they_name() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let writes = |r: &RequestInfo| r.mutates();
    server.inject(Rule::when(Effect::Refuse(429), writes).nth(1));
    server.inject(Rule::when(Effect::LoseRequest, writes).nth(1));
    server.inject(Rule::when(Effect::LoseAnswer, writes).nth(1));
    let mut hang = server.inject(Rule::when(Effect::HangAfter, writes).nth(1));
    assert_eq!(
        code(
            &api.create(&PostParams::default(), &config_map("a", &[]))
                .await
                .unwrap_err()
        ),
        429
    );
    assert!(api.create(&PostParams::default(), &config_map("a", &[])).await.is_err());
    assert!(api.get_opt("a").await.unwrap().is_none(), "nothing was done");
    assert!(api.create(&PostParams::default(), &config_map("a", &[])).await.is_err());
    assert!(api.get_opt("a").await.unwrap().is_some(), "it was done");
    let pending = tokio::spawn(async move { api.create(&PostParams::default(), &config_map("b", &[])).await });
    hang.wait().await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!pending.is_finished());
    assert_eq!(server.requests(RequestInfo::mutates).len(), 4);
    server.set_down(true);
    let service: Api<Service> = Api::namespaced(server.client("other"), "default");
    assert!(service.list(&ListParams::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn metadata_only_requests_carry_no_data() {
    let (_, client) = server();
    let api: Api<Secret> = Api::namespaced(client, "default");
    let secret = json!({"metadata": {"name": "s", "labels": {"l": "1"}}, "stringData": {"password": "hidden"}});
    api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].metadata.name.as_deref(), Some("s"));
    let mut stream = Box::pin(api.watch_metadata(&WatchParams::default(), "0").await.unwrap());
    assert!(
        matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(m)) if m.metadata.name.as_deref() == Some("s"))
    );
}

#[tokio::test(start_paused = true)]
async fn stale_lists_show_the_past() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    api.create(&PostParams::default(), &config_map("a", &[("k", "1")]))
        .await
        .unwrap();
    let version = server.version();
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}})))
        .await
        .unwrap();
    api.create(&PostParams::default(), &config_map("b", &[])).await.unwrap();
    server.serve_stale_lists("test", version, 1);
    let stale = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(stale.items.len(), 1);
    assert_eq!(stale.items[0].data.as_ref().unwrap()["k"], "1");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 2);
    assert_eq!(api.get("a").await.unwrap().data.unwrap()["k"], "2");
}
