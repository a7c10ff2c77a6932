//! Mark: commit a transaction that changes nothing; what was in the binlog before it is in the set after it (rule 1 b).

use super::{Context, Done, Outcome, refusal};

pub(super) async fn mark(context: &Context<'_>) -> Outcome {
    if context.mysql.read_state().await?.super_read_only {
        return Err(refusal("it is not open"));
    }
    let set = context.mysql.mark(context.left()).await?;
    context.shared.set_marker(Some(set));
    Ok(Done::Applied)
}
