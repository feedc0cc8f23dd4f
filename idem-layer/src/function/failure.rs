/// What an `Err` says about the effect of the function that returned it.
///
/// ```
/// use idem_layer::Failure;
///
/// enum PayError {
///     InvalidAmount,
///     CardDeclined,
///     Timeout,
/// }
///
/// fn classify(error: &PayError) -> Failure {
///     match error {
///         PayError::InvalidAmount => Failure::Safe,
///         PayError::CardDeclined => Failure::Final,
///         PayError::Timeout => Failure::Unknown,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing took effect: the key is free, a retry runs.
    Safe,
    /// It may have taken effect: under `at_least_once` a retry runs as a further attempt, under `at_most_once` nobody runs
    /// it until that is decided.
    Unknown,
    /// It is decided, and running again would not change it. With `errors = replay` repeats get this error. Without, they
    /// are refused as [`NotReplayable`](super::RefusedKind::NotReplayable): it is never run again either way.
    Final,
}
