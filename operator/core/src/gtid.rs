//! GTID sets.
/// placeholder
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet;
impl GtidSet {
    /// placeholder
    #[must_use]
    pub fn union(&self, _: &Self) -> Self { Self }
    /// placeholder
    #[must_use]
    pub fn contains(&self, _: &Self) -> bool { true }
}
