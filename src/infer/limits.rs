//! Every cap of the inference, with what happens when it is hit. Hitting one degrades to unknown and is recorded as an
//! approximation; it never leads to a guess. In and out: constants. Next: `world.rs`.

/// Worlds kept apart at once; above it the last ones are joined and their flags forgotten.
pub const MAX_WORLDS: usize = 16;
/// Combinations of flags that hang together that are looked through for one that can be; beyond them one is taken to be there.
pub const MAX_TIED_WORLDS: usize = 256;
/// Depth of calls executed within calls; deeper ones give unknown.
pub const MAX_CALL_DEPTH: usize = 24;
/// Times one function may be on the call stack; the next recursive call gives unknown.
pub const MAX_RECURSION: usize = 2;
/// Statements executed for one root, beyond [`STEPS_PER_STATEMENT`] for each of its own. Up to these, callees are
/// executed and worlds kept apart; then the rest of the root runs in one world, and at the end of both it is not checked.
/// The worlds that the constructor of its class leaves share them.
pub const MAX_STEPS: u64 = 6000;
/// Statements executed for one root before it enters a function that communicates or states a type, beyond one for each of its own. Of the
/// 2,102 roots of megatron-core, torchtitan, torch and ten further packages that enter one, 19 of 20 do so within these; what a root that is
/// given up would have called is executed as a root itself.
pub const VAIN_STEPS: u64 = 400;
/// Calls, as names show them, between a function and one that communicates or states a type, up to which a root that is not known to meet one
/// is followed through every call; beyond it only through calls that come nearer.
pub const NEAR: u32 = 3;
/// Calls, as names show them, between a function and one that communicates or states a type, beyond which it is not executed by itself:
/// names show more calls than there are, and of 11,000 functions of torch that are farther away 94 meet one, all but a few of them because
/// the constructor of their class does. No finding of 13,000 files of 330 projects needs them.
pub const MAX_DISTANCE: u32 = 6;
/// Statements executed for all roots of one file, beyond those of their own: each root gets an equal part, at most [`MAX_STEPS`] and at
/// least [`MIN_STEPS`]. Files of tests have hundreds of roots that all execute the same callees.
pub const MAX_FILE_STEPS: u64 = 240_000;
pub const MIN_STEPS: u64 = 1000;
/// Worlds kept apart once so many percent of the steps of a root are spent.
pub const WORLDS_LEFT: &[(u64, usize)] = &[(60, 8), (80, 4), (100, 1)];
/// Percent of the steps left that one call may take; one that takes more is given up, and what it returns is unknown.
pub const CALL_SHARE: u64 = 75;
/// Statements that one rank executes where the making of groups is rehearsed; a longer rehearsal says nothing. All ranks in all
/// configurations have eight times as many.
pub const MAX_REHEARSED: u32 = 20_000;
/// Statements of a function without anything that communicates that is executed all the same where it is given a flag or `None`: those of
/// `return val if exists(val) else default`, and a few more.
pub const MAX_CHOICE: usize = 12;
/// Statements of a function that is executed where it is called because it gives the own rank, or the number of ranks: those of one that
/// starts the process group, picks a device and returns both.
pub const MAX_SETUP: usize = 40;
/// Statements of a function whose tests of attributes that nobody knows tell configurations apart: those of `enter`, `leave` and their kin.
pub const MAX_KEPT_TESTS: usize = 24;
/// Statements of a function that is looked through for whether anybody reads what it sums, or differentiates what it cuts; a longer one is
/// taken to do so.
pub const MAX_MEASURED: usize = 500;
/// Times that every statement of a root may be executed before the budget for calls and paths is touched.
pub const STEPS_PER_STATEMENT: u64 = 4;
/// Rounds of a loop before its variables are given up.
pub const MAX_LOOP_ROUNDS: usize = 3;
/// Values looked through in a root for a second name of a container that a loop fills; beyond it the container may have one.
pub const MAX_SEARCHED: u64 = 1_000_000;
/// A norm that no gradient has: one that is cut to it is only measured.
pub const NO_BOUND: f64 = 1e6;
/// Elements of a literal sequence that a loop visits one by one.
pub const MAX_UNROLLED: usize = 8;
/// Depth to which containers are compared and joined; deeper parts are unknown.
pub const MAX_VALUE_DEPTH: usize = 6;
/// Elements of a list that are followed one by one; a longer list keeps one summary.
pub const MAX_LIST: usize = 256;
/// Entries of a dict that are followed one by one; whatever else a longer dict holds is unknown.
pub const MAX_DICT: usize = 256;
/// Parts of the path of an unknown value (`self.config.x`); longer ones lose their identity.
pub const MAX_PATH: usize = 8;
/// Flags between which a world remembers what holds; beyond it the connection is forgotten, and all combinations are possible.
pub const MAX_RULE_ATOMS: usize = 5;
/// Worlds that a joined world is taken apart into to say when a finding holds.
pub const MAX_EXPANDED: usize = 12;
/// Steps of the bodies of one autograd function, for each number of dims that is tried.
pub const DERIVATION_STEPS: u64 = 3_000;
/// Steps of the constructor of an object that only an annotation shows; after these it stays unknown.
pub const UNSEEN_STEPS: u64 = 1500;
/// Depth to which the constructors of such objects are given other ones.
pub const MAX_UNSEEN: usize = 2;
/// Classes that an object may be of by an annotation; above it the annotation says nothing of its methods.
pub const MAX_STANDING: usize = 8;
/// Times that one autograd function is derived in vain of the same kinds of arguments in a root; after these what it returns is unknown.
pub const MAX_VAIN_DERIVATIONS: usize = 2;
/// Depth to which an expression is read back from its statements; deeper parts stay variables.
pub const MAX_EXPR_DEPTH: usize = 24;
/// Places that sum gradients shown with one finding.
pub const MAX_REDUCERS_SHOWN: usize = 3;
/// Modules within modules that are looked through for one that is worth executing.
pub const MAX_HELD_DEPTH: usize = 3;
/// Functions of one name above which a method of an unknown value says nothing about which of them is called.
pub const MAX_NAMESAKES: usize = 4;
/// Groups of one root of which nothing but an identity is known: each is an axis of every type that it meets. Further ones are unknown.
pub const MAX_UNNAMED_GROUPS: usize = 48;
/// Flags of one object that other functions may set; more are left as the constructor leaves them.
pub const MAX_SET_FLAGS: usize = 64;
/// Steps in which an operation looks for the beginning of what decided a type, to choose which operand a finding shows.
pub const MAX_ORIGIN_STEPS: usize = 64;
/// Functions that are looked through for a sum of gradients behind one call; beyond that it may sum anything.
pub const MAX_REDUCING_CALLS: usize = 48;
/// Files of a program all of which may freeze a parameter or sum its gradient; in a larger one those that name its class.
pub const MAX_FILES_OF_PROGRAM: usize = 40;
/// Names in a test whether an option is one of them: `style in ("tp", "sp")`.
pub const MAX_NAMES_TESTED: usize = 6;

/// Paths of a root that are compared for what each answer to a flag needs of the parameters.
pub const MAX_NEEDING: usize = 128;
