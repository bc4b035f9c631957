//! The table of diagnostics. In: nothing. Out: code, name, default severity and page of each. Never: words of messages.
//! Next: `words/mod.rs`. A test checks that every code has a page, and that pages name no other code.

use crate::source::Severity;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub code: &'static str,
    pub name: &'static str,
    pub severity: Severity,
    pub page: &'static str,
}

macro_rules! codes {
    ($($konst:ident = $code:literal $name:literal $severity:ident),* $(,)?) => {
        $(pub const $konst: Code = Code {
            code: $code,
            name: $name,
            severity: Severity::$severity,
            page: include_str!(concat!("pages/", $code, ".md")),
        };)*
        /// Every diagnostic, in order of code.
        pub const CODES: &[Code] = &[$($konst),*];
    };
}

codes! {
    INVARIANT_MIXED = "SPMD101" "invariant-mixed" Error,
    PARTIAL_WITH_VARYING = "SPMD102" "partial-with-varying" Error,
    PARTIAL_NONLINEAR = "SPMD103" "partial-in-nonlinear-op" Error,
    PARTIAL_AFFINE = "SPMD104" "partial-plus-replicate" Error,
    PARTIAL_TWICE = "SPMD105" "partial-times-partial" Error,
    PARTIAL_DIVISOR = "SPMD106" "partial-divisor" Error,
    MISSING_AXIS = "SPMD107" "missing-axis" Error,
    IN_PLACE_CHANGE = "SPMD108" "in-place-type-change" Error,
    COLLECTIVE_SOURCE = "SPMD201" "mismatched-collective-source" Error,
    REDUCED_TWICE = "SPMD202" "reduced-twice" Error,
    ILLEGAL_CONVERSION = "SPMD203" "illegal-conversion" Error,
    EXPERT_CONVERSION = "SPMD204" "expert-conversion" Error,
    SHARD_OUT_OF_RANGE = "SPMD205" "shard-dim-out-of-range" Error,
    COLLECTIVE_ARGUMENTS = "SPMD206" "collective-arguments" Error,
    COLLECTIVE_OUTPUT = "SPMD207" "mismatched-collective-output" Error,
    UNEVEN_SHARD = "SPMD208" "uneven-shard" Error,
    DIM_CONFLICT = "SPMD209" "conflicting-dims" Error,
    BACKWARD_LOSS = "SPMD301" "backward-of-unreduced-loss" Error,
    UNREDUCED_STEP = "SPMD303" "step-without-reduction" Error,
    PARAMETER_NOT_SUMMED = "SPMD305" "parameter-not-summed" Error,
    DEFAULT_GROUP = "SPMD306" "other-group" Error,
    GRADIENT_SCALE = "SPMD307" "gradient-scale" Error,
    GRADIENT_PLACEMENT = "SPMD310" "dtensor-gradient-placement" Error,
    PLACEMENT_COUNT = "SPMD311" "placement-count" Error,
    SHARD_DIM = "SPMD312" "other-shard-dim" Error,
    UNREGISTERED_FUNCTION = "SPMD401" "unregistered-autograd-function" Error,
    NOT_ADJOINT = "SPMD402" "backward-not-adjoint" Error,
    OTHER_GROUP = "SPMD403" "backward-over-other-group" Error,
    GRADIENT_COUNT = "SPMD404" "wrong-number-of-gradients" Error,
    SCALED_ONE_WAY = "SPMD405" "scaled-in-one-direction" Error,
    BEFORE_EXCHANGE = "SPMD406" "gradient-before-exchange" Error,
    DECLARED_MISMATCH = "SPMD501" "declared-type-mismatch" Error,
    ARGUMENT_MISMATCH = "SPMD502" "argument-type-mismatch" Error,
    RETURN_MISMATCH = "SPMD503" "return-type-mismatch" Error,
    BAD_ANNOTATION = "SPMD510" "invalid-annotation" Error,
    UNKNOWN_NAME = "SPMD511" "unknown-name-in-annotation" Error,
    MISFIT = "SPMD512" "annotation-does-not-fit" Error,
    BAD_SUPPRESSION = "SPMD520" "invalid-suppression" Error,
    UNUSED_SUPPRESSION = "SPMD521" "unused-suppression" Warning,
    UNKNOWN_CODE = "SPMD522" "unknown-code-in-suppression" Error,
    LOST_RESULT = "SPMD601" "lost-result" Error,
    IGNORED_SWITCH = "SPMD604" "ignored-switch" Error,
    INVALID_CONFIG = "SPMD901" "invalid-config" Error,
    UNKNOWN_CONFIG_KEY = "SPMD902" "unknown-config-key" Error,
    SYNTAX_ERROR = "SPMD910" "syntax-error" Error,
    TOO_DEEP = "SPMD911" "nested-too-deeply" Warning,
    UNREADABLE = "SPMD912" "unreadable-file" Error,
    INVALID_RULES = "SPMD920" "invalid-rules" Error,
    INTERNAL_ERROR = "SPMD999" "internal-error" Error,
}

/// The row of a code or name.
pub fn find(text: &str) -> Option<&'static Code> {
    CODES.iter().find(|c| c.code.eq_ignore_ascii_case(text) || c.name == text)
}

/// The page of a code or name.
pub fn page(text: &str) -> Option<&'static str> {
    find(text).map(|c| c.page)
}
