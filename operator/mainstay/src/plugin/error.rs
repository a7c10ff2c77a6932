//! What can go wrong for the person at the terminal: one sentence, and what to do about it.

use kube::config::KubeconfigError;

/// Why a verb of the plugin could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// There is no usable kubeconfig.
    #[error(
        "failed to read the kubeconfig: {0}. Set KUBECONFIG, or name a file and a context with --kubeconfig and --context"
    )]
    Kubeconfig(String),
    /// The configuration cannot be used.
    #[error("failed to set up the connection to the API server: {0}")]
    Client(#[source] Box<kube::Error>),
    /// The API server does not answer.
    #[error(
        "the API server has not answered within {0} s. Check --context, and that the cluster is up: kubectl version"
    )]
    Slow(u64),
    /// The API server cannot be reached.
    #[error("failed to reach the API server: {0}. Check --context, and that the cluster is up: kubectl version")]
    Unreachable(String),
    /// No cluster of that name.
    #[error("there is no MySQLCluster {name} in namespace {namespace}{}", others_sentence(.others))]
    NoSuchCluster {
        /// The name that was asked for.
        name: String,
        /// Where it was looked for.
        namespace: String,
        /// The clusters that are there.
        others: Vec<String>,
    },
    /// The custom resource definition is missing.
    #[error(
        "this Kubernetes cluster does not know MySQLCluster of mysql.mainstay.dev/v1. \
         Install the operator: helm install mainstay charts/mainstay"
    )]
    NotInstalled,
    /// No access.
    #[error(
        "you may not read MySQLClusters in namespace {namespace}: {reason}. \
         Ask for the ClusterRole view, which covers them, or try another namespace with -n"
    )]
    Forbidden {
        /// Where.
        namespace: String,
        /// What the API server says.
        reason: String,
    },
    /// The credentials are not accepted.
    #[error("the API server does not accept your credentials. Log in again, or choose another --context")]
    Unauthorised,
    /// Anything else that the API server says.
    #[error("failed to read the MySQLCluster: {0}")]
    Refused(String),
    /// No right to ask for anything.
    #[error(
        "you may not change MySQLClusters in namespace {namespace}: {reason}. \
         Ask for the ClusterRole edit, which covers them"
    )]
    MayNotAsk {
        /// Where.
        namespace: String,
        /// What the API server says.
        reason: String,
    },
    /// The operator says no.
    #[error("refused: {0}")]
    RequestRefused(String),
    /// It was begun, and did not succeed.
    #[error("it did not succeed: {0}")]
    RequestFailed(String),
    /// The operator says nothing.
    #[error(
        "the operator has not answered within {waited} s. Is it running? The request is carried out when it is back; to take it \
         back: kubectl annotate myc {cluster} -n {namespace} mysql.mainstay.dev/request-"
    )]
    Unanswered {
        /// In seconds.
        waited: u64,
        /// About which cluster.
        cluster: String,
        /// Where it is.
        namespace: String,
    },
    /// It takes longer.
    #[error(
        "it is not done after {waited} s, and goes on. What it waits for: kubectl mainstay explain {cluster} -n {namespace}"
    )]
    Unfinished {
        /// In seconds.
        waited: u64,
        /// About which cluster.
        cluster: String,
        /// Where it is.
        namespace: String,
    },
    /// A backup takes longer.
    #[error("it is not stored after {waited} s, and goes on: kubectl get myb {name} -n {namespace}")]
    BackupUnfinished {
        /// In seconds.
        waited: u64,
        /// Of the MySQLBackup.
        name: String,
        /// Where it is.
        namespace: String,
    },
    /// The person did not confirm.
    #[error("not confirmed: {0}")]
    NotConfirmed(String),
    /// The result cannot be printed.
    #[error("failed to print the result: {0}")]
    Print(String),
}

fn others_sentence(others: &[String]) -> String {
    if others.is_empty() {
        ". Look in all namespaces: kubectl get mysqlclusters -A".to_owned()
    } else {
        format!("; there are: {}", others.join(", "))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "they are given to map_err")]
impl PluginError {
    pub(crate) fn kubeconfig(error: KubeconfigError) -> Self {
        let reason = match &error {
            KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
            // The parser draws the place below its sentence.
            other => chain(other).lines().next().unwrap_or_default().to_owned(),
        };
        Self::Kubeconfig(reason)
    }

    pub(crate) fn client(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }

    pub(crate) fn json(error: serde_json::Error) -> Self {
        Self::Print(error.to_string())
    }

    pub(crate) fn yaml(error: serde_norway::Error) -> Self {
        Self::Print(error.to_string())
    }

    /// Sorts what came back instead of a written annotation.
    pub(crate) fn patch(error: kube::Error, namespace: &str) -> Self {
        match error {
            kube::Error::Api(status) if matches!(status.code, 409 | 422) => Self::RequestRefused(status.message),
            kube::Error::Api(status) if status.code == 403 => Self::MayNotAsk {
                namespace: namespace.to_owned(),
                reason: status.message,
            },
            other => Self::request(other, namespace),
        }
    }

    /// Sorts what came back instead of an object.
    pub(crate) fn request(error: kube::Error, namespace: &str) -> Self {
        match error {
            // A 404 that names no object is one for the path: the API server does not know the kind.
            kube::Error::Api(status) if status.code == 404 => Self::NotInstalled,
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorised,
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden {
                namespace: namespace.to_owned(),
                reason: status.message,
            },
            kube::Error::Api(status) => Self::Refused(status.message),
            kube::Error::SerdeError(error) => {
                Self::Refused(format!("it does not look as this version expects: {error}"))
            }
            other => Self::Unreachable(reached(&other)),
        }
    }
}

/// Whether a 404 is about the object that was named (and not about its kind).
pub(crate) fn names_an_object(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Why a server was not reached, without the layers of the client that only pass it on.
pub(crate) fn reached(error: &kube::Error) -> String {
    const LAYERS: [&str; 3] = ["ServiceError: ", "client error (Connect): ", "tcp connect error: "];
    let text = chain(error);
    LAYERS
        .into_iter()
        .fold(text.as_str(), |text, layer| text.strip_prefix(layer).unwrap_or(text))
        .to_owned()
}

/// An error and its causes on one line, without the repetitions that wrapping brings.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    fn api(code: u16, message: &str, name: &str) -> kube::Error {
        let details = (!name.is_empty()).then(|| StatusDetails {
            name: name.to_owned(),
            group: "mysql.mainstay.dev".to_owned(),
            kind: "mysqlclusters".to_owned(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        let status = Status {
            code,
            message: message.to_owned(),
            details,
            ..Status::default()
        };
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn a_missing_object_and_a_missing_kind_are_told_apart() {
        assert!(names_an_object(&api(404, "mysqlclusters \"shop\" not found", "shop")));
        let kind = api(404, "404 page not found", "");
        assert!(!names_an_object(&kind));
        assert!(
            PluginError::request(kind, "default")
                .to_string()
                .contains("helm install")
        );
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let cases = [
            (api(401, "Unauthorized", ""), "Log in again"),
            (
                api(403, "mysqlclusters is forbidden: User \"eve\" cannot get", ""),
                "User \"eve\" cannot get. Ask for",
            ),
            (
                api(500, "etcdserver: request timed out", ""),
                "etcdserver: request timed out",
            ),
        ];
        for (error, expected) in cases {
            let text = PluginError::request(error, "default").to_string();
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains('\n'), "one sentence: {text}");
        }
    }

    #[test]
    fn layers_of_the_client_are_not_told() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Layer(#[source] std::io::Error);
        let refused = std::io::Error::other("Connection refused (os error 111)");
        let error = PluginError::request(kube::Error::Service(Box::new(Layer(refused))), "default");
        assert_eq!(
            error.to_string(),
            "failed to reach the API server: Connection refused (os error 111). Check --context, and that the cluster is up: \
             kubectl version"
        );
    }

    #[test]
    fn a_kubeconfig_that_is_not_there_is_named_once() {
        let missing = Kubeconfig::read_from("/nonexistent/config").unwrap_err();
        assert_eq!(
            PluginError::kubeconfig(missing).to_string(),
            "failed to read the kubeconfig: /nonexistent/config: No such file or directory (os error 2). Set KUBECONFIG, or name \
             a file and a context with --kubeconfig and --context"
        );
        let broken = Kubeconfig::from_yaml("foo: [").unwrap_err();
        let text = PluginError::kubeconfig(broken).to_string();
        assert!(!text.contains('\n'), "one sentence: {text}");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = |others: &[&str]| PluginError::NoSuchCluster {
            name: "shp".to_owned(),
            namespace: "default".to_owned(),
            others: others.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(
            error(&["shop", "web"]).to_string(),
            "there is no MySQLCluster shp in namespace default; there are: shop, web"
        );
        assert_eq!(
            error(&[]).to_string(),
            "there is no MySQLCluster shp in namespace default. Look in all namespaces: kubectl get mysqlclusters -A"
        );
    }
}
