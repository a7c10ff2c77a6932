//! The role label of pods (decision B9): for `kubectl get pods -L` and selectors of people. No decision reads it.

use mainstay_api::status::Role;

use crate::action::Action;
use crate::plan::draft::Draft;
use crate::rules::Phase;
use crate::view::View;

/// Labels the pods whose role is another one than their label says. Only while nothing more urgent is to be done.
pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) {
    if draft.commands_or_records() || view.rules.phase != Phase::Open {
        return;
    }
    for instance in &view.observed.instances {
        let Some(pod) = instance.pod.as_ref().filter(|pod| !pod.deleting) else {
            continue;
        };
        let role = view.role(&instance.name).map(Role::as_str);
        if pod.role.as_deref() != role {
            draft.push(Action::LabelPod {
                instance: instance.name.clone(),
                uid: pod.uid.clone(),
                role,
            });
        }
    }
}
