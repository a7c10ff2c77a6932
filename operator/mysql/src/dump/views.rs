//! Views in an order in which they can be created, each tried out.

use std::collections::{BTreeMap, BTreeSet};

use super::programs::Program;
use super::{DumpError, DumpServer, NAMES, OWN_SCHEMAS, qualified};
use crate::error::MysqlError;
use crate::{quote, read};

/// Schema and name.
type Name = (String, String);

impl DumpServer {
    /// Views after those on which they rest.
    pub(super) async fn views_in_order(&mut self) -> Result<Vec<Name>, MysqlError> {
        let text = format!(
            "SELECT v.TABLE_SCHEMA, v.TABLE_NAME, u.TABLE_SCHEMA, u.TABLE_NAME FROM information_schema.VIEWS v \
             LEFT JOIN information_schema.VIEW_TABLE_USAGE u ON u.VIEW_SCHEMA=v.TABLE_SCHEMA AND u.VIEW_NAME=v.TABLE_NAME \
             WHERE v.TABLE_SCHEMA NOT IN {OWN_SCHEMAS}"
        );
        let mut views: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for row in self.query("list the views", text).await? {
            let view = (read::text(&row, 0)?, read::text(&row, 1)?);
            let on = (read::text(&row, 2)?, read::text(&row, 3)?);
            views.entry(view).or_default().insert(on);
        }
        Ok(in_order(views))
    }

    /// Creates a view once more over itself: one that refers to what is gone could not be loaded either, and it is better to
    /// know that now.
    pub(super) async fn try_view(&mut self, schema: &str, name: &str, view: &Program) -> Result<(), DumpError> {
        const WHAT: &str = "create a view again";
        self.run(WHAT, view.session()).await?;
        let tried = self.run(WHAT, view.replacement()).await;
        self.run(WHAT, quote::SESSION_MODE).await?;
        self.run(WHAT, NAMES).await?;
        match tried {
            Err(MysqlError::Server { code, message, .. }) => Err(DumpError::View {
                view: qualified(schema, name),
                reason: format!("{message} (MySQL error {code})"),
            }),
            other => Ok(other?),
        }
    }
}

/// Each after those that it needs; what needs itself comes last.
fn in_order(mut views: BTreeMap<Name, BTreeSet<Name>>) -> Vec<Name> {
    let mut order = Vec::new();
    while !views.is_empty() {
        let waits = |needs: &BTreeSet<Name>| needs.iter().any(|need| views.contains_key(need));
        let ready: Vec<Name> = views
            .iter()
            .filter(|(_, needs)| !waits(needs))
            .map(|(name, _)| name.clone())
            .collect();
        if ready.is_empty() {
            order.extend(std::mem::take(&mut views).into_keys());
        }
        for name in ready {
            views.remove(&name);
            order.push(name);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        ("a".to_owned(), text.to_owned())
    }

    #[test]
    fn a_view_comes_after_those_that_it_needs() {
        let views = [("a", "z"), ("m", "t"), ("z", "m"), ("b", "gone")];
        let views = views
            .into_iter()
            .map(|(view, on)| (name(view), BTreeSet::from([name(on)])))
            .collect();
        assert_eq!(in_order(views), ["b", "m", "z", "a"].map(name));
        let circle = [("a", "b"), ("b", "a")];
        let circle = circle
            .into_iter()
            .map(|(view, on)| (name(view), BTreeSet::from([name(on)])))
            .collect();
        assert_eq!(in_order(circle), ["a", "b"].map(name));
    }
}
