//! Every option, typed. In: words. Out: [`Command`]. Never: reading anything but the words. Next: `check.rs`.

use crate::render::Format;
use crate::types::mode::MODES;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A static type checker for distributed (SPMD) PyTorch training code.
#[derive(Debug, Parser)]
#[command(name = "spmd-check", version, arg_required_else_help = true, subcommand_value_name = "COMMAND")]
#[command(after_help = "Exit codes: 0 clean, 1 findings of level error, 2 usage, configuration or internal failure.")]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check files and folders
    Check(CheckOptions),
    /// Print the inferred types of functions and variables
    Types(TypesOptions),
    /// Print the gradients that reach the optimizer: type, reducer, axes and factor of each kind of parameters
    Gradients(GradientsOptions),
    /// Print what a DTensor redistribute does: its steps, its collectives, its bytes
    Plan(PlanOptions),
    /// Explain a diagnostic, or list them all
    Explain(ExplainOptions),
    /// List the rule files in force
    Rules(RulesOptions),
    /// Write a commented spmd-check.toml
    Init(InitOptions),
    /// Serve an editor: the Language Server Protocol on standard input and output
    #[command(visible_alias = "lsp")]
    Server(ServerOptions),
    /// Write a page that shows types, collectives and findings of every function
    Report(ReportOptions),
    /// Print how types flow through a function, as a graph
    Graph(GraphOptions),
    /// Print the completions of a shell
    Completions(CompletionsOptions),
    /// Print the manual page
    Man,
    /// Print the lowered program
    #[command(hide = true)]
    DumpIr(DumpOptions),
}

#[derive(Debug, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
    /// How findings are written
    #[arg(long, value_name = "FORMAT", default_value = "full", value_parser = format_parser())]
    pub output_format: Format,
    /// Report only these: codes, names or prefixes such as SPMD1, separated by commas
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub select: Vec<String>,
    /// Leave these out, after --select
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// Report only what this file does not record
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Record the present findings in the baseline
    #[arg(long, requires = "baseline")]
    pub update_baseline: bool,
    /// Keep findings in this folder, for runs in which no file has changed
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Report only what the change since this git revision introduces
    #[arg(long, value_name = "REV", conflicts_with = "update_baseline")]
    pub diff_base: Option<String>,
    /// Repair what can be repaired with certainty; the project is checked again after each edit
    #[arg(long, conflicts_with_all = ["update_baseline", "diff_base"], help_heading = "Changing files")]
    pub fix: bool,
    /// Repair also where more than one repair is possible, by the likeliest
    #[arg(long, help_heading = "Changing files")]
    pub unsafe_fixes: bool,
    /// Show changes instead of making them; exits with 1 if there are any
    #[arg(long, conflicts_with = "update_baseline", help_heading = "Changing files")]
    pub diff: bool,
    /// Write inferred signatures as comments, where all of them is known
    #[arg(long, conflicts_with_all = ["fix", "unsafe_fixes", "update_baseline"], help_heading = "Changing files")]
    pub annotate: bool,
    /// Suppress what is found today with a comment that gives this reason
    #[arg(long, value_name = "REASON", conflicts_with_all = ["fix", "unsafe_fixes", "annotate", "update_baseline"])]
    #[arg(help_heading = "Changing files")]
    pub add_ignore: Option<String>,
    /// Check again after every change, until Ctrl-C
    #[arg(long, conflicts_with_all = ["fix", "diff", "annotate", "add_ignore", "update_baseline"])]
    pub watch: bool,
    /// Print every setting with its value
    #[arg(long, help_heading = "Settings")]
    pub show_settings: bool,
    /// Print the files that would be checked
    #[arg(long, help_heading = "Settings")]
    pub show_files: bool,
    /// Print which configuration a file has, and what it says about it
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub explain_config: Option<PathBuf>,
    /// Count findings by code
    #[arg(long)]
    pub statistics: bool,
    /// Count what could and could not be typed
    #[arg(long)]
    pub coverage: bool,
    /// Exit with 0 even when there are findings
    #[arg(long)]
    pub exit_zero: bool,
}

#[derive(Debug, Args)]
pub struct TypesOptions {
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
    /// Types of variables, line by line, instead of signatures
    #[arg(long)]
    pub variables: bool,
    /// Custom autograd functions only: what their source implies, or why nothing is derived
    #[arg(long, conflicts_with = "variables")]
    pub autograd: bool,
    /// Factors of losses, counts and sizes, line by line, instead of signatures
    #[arg(long, conflicts_with_all = ["variables", "autograd"])]
    pub scales: bool,
    /// How types are written; JSON lists variables, parameters and returns
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output_format: TypesFormat,
    /// Whose notation a type of a variable is written in
    #[arg(long, value_name = "NOTATION", default_value = "spmd")]
    pub notation: Notation,
}

#[derive(Debug, Args)]
pub struct GradientsOptions {
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
    /// A table, or an array with an object for each row
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output_format: TypesFormat,
}

/// How a type of a variable is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Notation {
    /// Axis by axis: `{dp: S(0), tp: P}`
    Spmd,
    /// Placements in the order of the axes: `(dp: Shard(0), tp: Partial())`
    Dtensor,
    /// A partition spec: `('dp', None)`; what is no shard is listed after it
    Xla,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TypesFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spmd-check plan --mesh dp=2,tp=4 --shape 16,16 --dtype bf16 \"S(0), S(0)\" \"R, S(0)\""
)]
pub struct PlanOptions {
    /// Placements of the source, one for each mesh dim: R, S(0), P(sum), _S(0, 2), S(0)[1]
    #[arg(value_name = "SOURCE", required_unless_present = "batch", allow_hyphen_values = true)]
    pub source: Option<String>,
    /// Placements of the target
    #[arg(value_name = "TARGET", required_unless_present = "batch", allow_hyphen_values = true)]
    pub target: Option<String>,
    /// Dims of the mesh, outer first: dp=2,tp=4 or 2,4
    #[arg(long, value_name = "DIMS", required_unless_present = "batch")]
    pub mesh: Option<String>,
    /// The global shape of the tensor: 16,16
    #[arg(long, value_name = "SIZES", required_unless_present = "batch")]
    pub shape: Option<String>,
    /// The dtype of the tensor
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    pub dtype: String,
    /// What the ranks run on: Gloo gathers where NCCL has an all-to-all [default: cuda, with --batch cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<PlanDevice>,
    /// Devices of one host, which the search over shard orders looks at [default: cuda 8, cpu 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub devices_per_host: Option<u64>,
    /// How the plan is written; the answers of a batch are JSON
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: PlanFormat,
    /// Answer each line of this file, one JSON object with mesh, shape, src and dst; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "target", "mesh", "shape"])]
    pub batch: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanDevice {
    Cpu,
    Cuda,
}

#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// A code such as SPMD101 or 101, or a name such as invariant-mixed
    pub code: Option<String>,
}

#[derive(Debug, Args)]
pub struct RulesOptions {
    #[command(flatten)]
    pub config: ConfigOptions,
    /// Derive every mapping function that this tree defines, and compare it with its row
    #[arg(long, value_name = "PATH")]
    pub verify: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct InitOptions {
    /// The folder to write it in
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ServerOptions {
    /// Accepted because some editors pass it; there is no other way to talk
    #[arg(long, hide = true)]
    pub stdio: bool,
}

#[derive(Debug, Args)]
pub struct ReportOptions {
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "spmd-report.html")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct GraphOptions {
    /// The function: its name, or its path such as `package.module.Class.forward`
    pub function: String,
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
    /// The language of the graph
    #[arg(long, value_name = "FORMAT", default_value = "dot")]
    pub format: GraphFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Graphviz
    Dot,
    Mermaid,
}

#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct DumpOptions {
    #[command(flatten)]
    pub input: InputOptions,
    #[command(flatten)]
    pub config: ConfigOptions,
    #[command(flatten)]
    pub shared: SharedOptions,
}

/// What is read.
#[derive(Debug, Args)]
pub struct InputOptions {
    /// Files and folders; `-` reads standard input [default: .]
    pub paths: Vec<PathBuf>,
    /// The name of the file that comes on standard input
    #[arg(long, value_name = "FILE")]
    pub stdin_filename: Option<PathBuf>,
}

/// Which configuration holds.
#[derive(Debug, Args)]
pub struct ConfigOptions {
    /// Use this configuration file
    #[arg(long, value_name = "FILE", conflicts_with = "isolated")]
    pub config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long)]
    pub isolated: bool,
    /// Take the program for a single-device one that is run in these parallel modes, besides those of the configuration
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = mode_parser())]
    pub mode: Vec<String>,
}

/// Parallel modes by name.
fn mode_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(MODES.iter().map(|m| m.name()))
}

/// How the run behaves.
#[derive(Debug, Args)]
pub struct SharedOptions {
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
    /// Number of threads [default: one per core]
    #[arg(short = 'j', long = "jobs", value_name = "N")]
    pub jobs: Option<usize>,
    /// Findings only, no summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what is read and how long it takes
    #[arg(short, long)]
    pub verbose: bool,
}

impl SharedOptions {
    /// No progress and no summary.
    pub fn quiet() -> SharedOptions {
        SharedOptions { color: ColorChoice::Auto, jobs: None, quiet: true, verbose: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.iter().map(|(name, _)| *name))
        .map(|name| Format::from_name(&name).expect("only names of formats are accepted"))
}
