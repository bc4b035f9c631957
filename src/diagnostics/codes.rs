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
    NORMALISED_PARTS = "SPMD109" "softmax-of-parts" Error,
    COLLECTIVE_SOURCE = "SPMD201" "mismatched-collective-source" Error,
    REDUCED_TWICE = "SPMD202" "reduced-twice" Error,
    ILLEGAL_CONVERSION = "SPMD203" "illegal-conversion" Error,
    EXPERT_CONVERSION = "SPMD204" "expert-conversion" Error,
    SHARD_OUT_OF_RANGE = "SPMD205" "shard-dim-out-of-range" Error,
    COLLECTIVE_ARGUMENTS = "SPMD206" "collective-arguments" Error,
    COLLECTIVE_OUTPUT = "SPMD207" "mismatched-collective-output" Error,
    UNEVEN_SHARD = "SPMD208" "uneven-shard" Error,
    DIM_CONFLICT = "SPMD209" "conflicting-dims" Error,
    OTHER_POSITIONS = "SPMD216" "sum-of-other-positions" Error,
    BACKWARD_LOSS = "SPMD301" "backward-of-unreduced-loss" Error,
    GRADIENT_CUT = "SPMD302" "gradient-cut" Error,
    UNREDUCED_STEP = "SPMD303" "step-without-reduction" Error,
    LATE_REDUCTION = "SPMD304" "late-reduction" Error,
    PARAMETER_NOT_SUMMED = "SPMD305" "parameter-not-summed" Error,
    DEFAULT_GROUP = "SPMD306" "other-group" Error,
    GRADIENT_SCALE = "SPMD307" "gradient-scale" Error,
    LOCAL_COUNT = "SPMD308" "local-count" Error,
    PARTITION_NOT_MARKED = "SPMD309" "part-not-marked" Error,
    GRADIENT_PLACEMENT = "SPMD310" "dtensor-gradient-placement" Error,
    PLACEMENT_COUNT = "SPMD311" "placement-count" Error,
    SHARD_DIM = "SPMD312" "other-shard-dim" Error,
    PART_SUMMED = "SPMD314" "part-summed" Error,
    PLAN_MISFIT = "SPMD315" "plan-misfit" Error,
    CHECKPOINT_AXIS = "SPMD316" "checkpoint-axis" Error,
    GRADIENT_FACTOR = "SPMD320" "gradient-factor" Error,
    GRADIENT_FACTORS_DIFFER = "SPMD321" "gradient-factors-differ" Error,
    GRADIENT_NOT_SUMMED = "SPMD322" "gradient-not-summed" Error,
    MEAN_OF_MEANS = "SPMD323" "mean-of-means" Error,
    METRIC_FACTOR = "SPMD324" "metric-factor" Error,
    REPEATED_FACTOR = "SPMD325" "repeated-factor" Error,
    SHARD_NORM = "SPMD326" "norm-of-shards" Error,
    UNSYNCED_STEP = "SPMD327" "unsynchronised-step" Error,
    OUTSIDE_WRAPPER = "SPMD328" "outside-of-wrapper" Error,
    PLAIN_SPLIT = "SPMD332" "split-without-gather" Error,
    OTHER_ASKED = "SPMD335" "other-group-asked" Error,
    OTHER_COUNT = "SPMD336" "count-over-other-ranks" Error,
    COPIES_SUMMED = "SPMD337" "copies-in-sum" Error,
    UNUSED_GROUP = "SPMD338" "unused-expert-group" Error,
    UNREGISTERED_FUNCTION = "SPMD401" "unregistered-autograd-function" Error,
    NOT_ADJOINT = "SPMD402" "backward-not-adjoint" Error,
    OTHER_GROUP = "SPMD403" "backward-over-other-group" Error,
    GRADIENT_COUNT = "SPMD404" "wrong-number-of-gradients" Error,
    SCALED_ONE_WAY = "SPMD405" "scaled-in-one-direction" Error,
    BEFORE_EXCHANGE = "SPMD406" "gradient-before-exchange" Error,
    MISPLACED_GRADIENT = "SPMD407" "misplaced-gradient" Error,
    DECLARED_OTHER = "SPMD408" "declared-other-than-derived" Error,
    RAW_IN_DOUBLE_BACKWARD = "SPMD409" "collective-in-double-backward" Error,
    DOC_CLAIM = "SPMD410" "docstring-names-other-collective" Note,
    PRODUCT_ORDER = "SPMD411" "product-before-exchange" Error,
    OTHER_INPUT = "SPMD412" "gradient-of-other-input" Error,
    SPLIT_SIZES = "SPMD413" "split-sizes-not-exchanged" Error,
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
    READ_IN_FLIGHT = "SPMD602" "read-before-wait" Error,
    INVERTED_GUARD = "SPMD603" "inverted-guard" Error,
    IGNORED_SWITCH = "SPMD604" "ignored-switch" Error,
    SOME_RANKS = "SPMD605" "collective-on-some-ranks" Error,
    SHARED_BUFFER = "SPMD606" "shared-buffer" Error,
    SHARDS_APART = "SPMD611" "shards-do-not-line-up" Error,
    NO_SPEC = "SPMD612" "varying-without-spec" Error,
    NOT_INNERMOST = "SPMD613" "not-the-innermost-axis" Error,
    SPEC_CONFLICT = "SPMD614" "conflicting-specs" Error,
    AXIS_ORDER = "SPMD615" "unordered-axes" Error,
    REFUSED_LAYOUT = "SPMD616" "refused-layout" Error,
    DECLARED_SHARDING = "SPMD617" "declared-sharding" Error,
    LAYOUT_MOVE = "SPMD618" "layout-move" Warning,
    UNUSED_LAYOUT = "SPMD619" "unused-layout" Warning,
    NEVER_READ = "SPMD620" "arrival-never-read" Error,
    REFUSED_PLACEMENT = "SPMD701" "refused-placement" Error,
    TWO_MESHES = "SPMD702" "two-meshes" Error,
    MIXED_TENSORS = "SPMD703" "mixed-tensors" Error,
    IMPLICIT_REDISTRIBUTION = "SPMD704" "implicit-redistribution" Warning,
    MESH_DIMS = "SPMD705" "mesh-dims" Error,
    FALSE_PLACEMENT = "SPMD706" "false-placement" Error,
    PARALLEL_PLAN = "SPMD707" "parallel-plan" Error,
    PLAN_WITHOUT_MODULE = "SPMD708" "plan-without-module" Warning,
    NOTATIONS_DISAGREE = "SPMD709" "notations-disagree" Error,
    PARTIAL_RESULT = "SPMD710" "partial-result" Warning,
    MODE_GONE = "SPMD711" "mode-decorator-gone" Note,
    PLAN_LAYOUTS = "SPMD712" "plan-layouts" Error,
    SHARDED_VIEW = "SPMD713" "sharded-view" Error,
    DEVICE_MESH = "SPMD801" "device-mesh" Error,
    MESH_AXIS_NAMES = "SPMD802" "mesh-axis-names" Error,
    PARTITION_SPEC_LENGTH = "SPMD803" "partition-spec-length" Error,
    PARTITION_SPEC_ENTRY = "SPMD804" "partition-spec-entry" Error,
    AXIS_TWICE = "SPMD805" "axis-used-twice" Error,
    SHARDED_WRAPPER = "SPMD806" "sharded-wrapper" Error,
    UNUSED_MESH_AXIS = "SPMD810" "unused-mesh-axis" Warning,
    UNEVEN_SHARDING = "SPMD811" "uneven-sharding" Warning,
    CONFLICTING_ANNOTATIONS = "SPMD812" "conflicting-annotations" Warning,
    SHARDING_MODE = "SPMD813" "sharding-mode" Warning,
    PROCESS_COLLECTIVE = "SPMD814" "process-collective" Warning,
    UNBALANCED_MANUAL = "SPMD815" "unbalanced-manual-sharding" Warning,
    FORWARD_ONLY = "SPMD816" "forward-only-annotation" Error,
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
