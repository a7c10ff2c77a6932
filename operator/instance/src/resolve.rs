//! Addresses of other instances.
//!
//! A resolver that takes a name with a dot for a whole one (`ndots:1`) does not try the search list afterwards, in musl at
//! least (decision A10). So the names that the list makes are tried one by one.

use std::net::SocketAddr;

use tokio::net::lookup_host;

/// Where the resolver's configuration stands.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The addresses of a host, by whatever form of its name is known; empty when none is.
pub(crate) async fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    let conf = tokio::fs::read_to_string(RESOLV_CONF).await.unwrap_or_default();
    for name in names(host, &conf) {
        if let Ok(addresses) = lookup_host((name.as_str(), port)).await {
            let addresses: Vec<SocketAddr> = addresses.collect();
            if !addresses.is_empty() {
                return addresses;
            }
        }
    }
    Vec::new()
}

/// The name as it is, and then with each domain of the search list, as a whole name.
fn names(host: &str, resolv_conf: &str) -> Vec<String> {
    let search = resolv_conf
        .lines()
        .rev()
        .find_map(|line| line.trim_start().strip_prefix("search "))
        .unwrap_or_default();
    let with = |domain: &str| format!("{host}.{}.", domain.trim_end_matches('.'));
    std::iter::once(host.to_owned())
        .chain(search.split_whitespace().map(with))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f04_every_domain_of_the_search_list_is_tried_as_a_whole_name() {
        let conf = "search old.example\nnameserver 10.96.0.10\nsearch prod.svc.k8s.test svc.k8s.test k8s.test.\noptions ndots:1\n";
        assert_eq!(
            names("shop-1.shop-instances.prod.svc", conf),
            [
                "shop-1.shop-instances.prod.svc",
                "shop-1.shop-instances.prod.svc.prod.svc.k8s.test.",
                "shop-1.shop-instances.prod.svc.svc.k8s.test.",
                "shop-1.shop-instances.prod.svc.k8s.test.",
            ]
        );
        assert_eq!(names("a.b", ""), ["a.b"]);
    }

    #[tokio::test]
    async fn a_literal_is_its_own_address() {
        assert_eq!(resolve("127.0.0.1", 7).await, ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(resolve("::1", 7).await, ["[::1]:7".parse().unwrap()]);
    }
}
