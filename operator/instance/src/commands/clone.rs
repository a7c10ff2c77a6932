//! Clone: replace the data directory. Answered when the former one counts no more; the status tells the rest.

use mainstay_core::action::Endpoint;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::CloneDonor;

use super::{Context, Done, Outcome, Refusal, refusal};
use crate::server::CloneOrder;

pub(super) async fn clone(context: &Context<'_>, donor: &Endpoint, keep_former: bool) -> Outcome {
    if donor.id.instance == context.shared.config.instance {
        return Err(refusal("it cannot be cloned from itself"));
    }
    // A server that does not answer is no reason to refuse: it is what a clone is for. It starts read-only.
    if context.server.process().phase == Mysqld::Running
        && let Ok(state) = context.mysql.read_state().await
    {
        if !state.super_read_only {
            return Err(refusal("it is writable: it must be fenced first"));
        }
        if state.clones > 0 {
            return Err(refusal("another instance is being cloned from it"));
        }
    }
    let secrets = context.shared.secrets();
    let Some(password) = secrets.credentials.clone.clone() else {
        return Err(refusal(
            "the password of the clone account is not known: see the Secret's file clone",
        ));
    };
    let donor = CloneDonor {
        host: donor.host.clone(),
        port: donor.port,
        password,
    };
    context
        .server
        .clone_from(CloneOrder { donor, keep_former })
        .await
        .map_err(Refusal)?;
    Ok(Done::Applied)
}
