//! Keys and values of labels and annotations that stand in the spec, as Kubernetes demands them: a Service or StatefulSet with
//! another one would be refused by the API server, again and again.

use std::collections::BTreeMap;

use super::SpecProblem;

/// Longest name of a key, and longest value of a label.
const NAME: usize = 63;
/// Longest prefix of a key.
const PREFIX: usize = 253;
/// Bytes of all annotations of an object together.
const ANNOTATIONS: usize = 256 << 10;
/// What a key looks like, for a person.
const FORM: &str = "write NAME or PREFIX/NAME: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, \
                    behind a DNS name such as example.com";

/// Labels or annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Their keys are in lower or upper case, and any text is a value.
    Annotations,
    /// The prefixes of their keys are in lower case, and values are short words.
    Labels,
}

/// Reports keys and values that the API server would refuse.
pub(super) fn check(field: &str, kind: Kind, map: &BTreeMap<String, String>, problems: &mut Vec<SpecProblem>) {
    let size: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if kind == Kind::Annotations && size > ANNOTATIONS {
        let message = format!("{size} bytes are too many; Kubernetes keeps at most {ANNOTATIONS} on an object");
        problems.push(SpecProblem::new(field, message));
    }
    for (key, value) in map {
        let place = format!("{field}[{key}]");
        let spelled = match kind {
            Kind::Annotations => key.to_ascii_lowercase(),
            Kind::Labels => key.clone(),
        };
        if !is_key(&spelled) {
            let what = match kind {
                Kind::Annotations => "an annotation",
                Kind::Labels => "a label",
            };
            problems.push(SpecProblem::new(place, format!("is not the key of {what}; {FORM}")));
        } else if kind == Kind::Labels && !value.is_empty() && !is_word(value) {
            let message = format!(
                "\"{value}\" is not the value of a label; at most 63 letters, digits, '-', '_' and '.', with a letter or digit \
                 at both ends"
            );
            problems.push(SpecProblem::new(place, message));
        }
    }
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_word(key),
        Some((prefix, name)) => is_domain(prefix) && is_word(name),
    }
}

fn is_word(word: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = |c: char| c.is_ascii_alphanumeric();
    word.len() <= NAME && word.starts_with(end) && word.ends_with(end) && word.chars().all(inner)
}

fn is_domain(name: &str) -> bool {
    let end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| end(c) || c == '-';
    let is_label = |label: &str| label.starts_with(end) && label.ends_with(end) && label.chars().all(inner);
    name.len() <= PREFIX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn checked(kind: Kind, key: &str, value: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let map = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        check("spec.x", kind, &map, &mut problems);
        problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.field, problem.message))
            .collect()
    }

    #[rstest]
    #[case("team")]
    #[case("example.com/scrape")]
    #[case("service.beta.kubernetes.io/aws-load-balancer-type")]
    #[case("a_b.C-1")]
    fn usual_keys_are_accepted(#[case] key: &str) {
        for kind in [Kind::Annotations, Kind::Labels] {
            assert_eq!(checked(kind, key, "v1"), Vec::<String>::new());
        }
    }

    #[rstest]
    #[case("")]
    #[case("bad key")]
    #[case("-a")]
    #[case("a-")]
    #[case("a/b/c")]
    #[case("/a")]
    #[case("a/")]
    #[case("exa_mple.com/a")]
    #[case("example..com/a")]
    #[case("ключ")]
    fn other_keys_are_refused_with_their_form(#[case] key: &str) {
        for (kind, word) in [(Kind::Annotations, "an annotation"), (Kind::Labels, "a label")] {
            let expected = format!("spec.x[{key}]: is not the key of {word}; write NAME or PREFIX/NAME: ");
            assert!(checked(kind, key, "v")[0].starts_with(&expected));
        }
        let long = "a".repeat(64);
        assert_eq!(checked(Kind::Labels, &long, "v").len(), 1);
    }

    #[test]
    fn labels_are_stricter_than_annotations() {
        assert_eq!(
            checked(Kind::Annotations, "Example.com/a", "any text, of any length"),
            Vec::<String>::new()
        );
        assert_eq!(checked(Kind::Labels, "Example.com/a", "v").len(), 1);
        let value = checked(Kind::Labels, "a", "two words");
        assert!(
            value[0].starts_with("spec.x[a]: \"two words\" is not the value of a label; "),
            "{value:?}"
        );
        assert_eq!(checked(Kind::Labels, "a", ""), Vec::<String>::new());
        let large = checked(Kind::Annotations, "a", &"x".repeat(ANNOTATIONS));
        assert_eq!(
            large,
            ["spec.x: 262145 bytes are too many; Kubernetes keeps at most 262144 on an object"]
        );
    }
}
