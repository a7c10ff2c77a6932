//! Clone and Refill: replace the data directory. Answered when the former one counts no more; the status tells the rest.

use mainstay_core::GtidSet;
use mainstay_core::action::Endpoint;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::CloneDonor;

use super::{Context, Done, Outcome, Refusal, refusal};
use crate::server::{CloneOrder, Origin};

pub(super) async fn clone(context: &Context<'_>, donor: &Endpoint, keep_former: bool) -> Outcome {
    if donor.id.instance == context.shared.config.instance {
        return Err(refusal("it cannot be cloned from itself"));
    }
    may_be_given_up(context).await?;
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
    begin(context, Origin::Instance(donor), keep_former).await
}

pub(super) async fn refill(context: &Context<'_>, at_least: &GtidSet, keep_former: bool) -> Outcome {
    may_be_given_up(context).await?;
    let at_least = at_least.clone();
    begin(context, Origin::Store { at_least }, keep_former).await
}

/// A server that does not answer is no reason to refuse: it is what this is for. It starts read-only.
async fn may_be_given_up(context: &Context<'_>) -> Result<(), Refusal> {
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
    Ok(())
}

async fn begin(context: &Context<'_>, origin: Origin, keep_former: bool) -> Outcome {
    let order = CloneOrder { origin, keep_former };
    context.server.clone_from(order).await.map_err(Refusal)?;
    Ok(Done::Applied)
}
