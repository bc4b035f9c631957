//! Factors of variables and of gradients as lines to be shown. In: the output of the inference. Out: [`ScaleLine`], [`GradientLine`].
//! Never: a verdict. Next: `cli/gradients.rs`, `cli/types.rs`.

use crate::infer::Output;
use crate::infer::scale::value::What;
use crate::project::Project;
use crate::source::Files;
use crate::types::AxisSet;

/// The factor of a variable after a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScaleLine {
    pub path: String,
    pub line: u32,
    pub function: String,
    pub variable: String,
    pub factor: String,
}

/// Who reduces a gradient, and over which axes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReducerLine {
    /// `sum`, `mean` or `wrapper`.
    pub kind: &'static str,
    pub axes: Vec<String>,
    pub path: String,
    pub line: u32,
}

/// The gradients of some parameters where an optimizer takes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GradientLine {
    pub path: String,
    pub line: u32,
    pub function: String,
    pub parameters: String,
    /// Axis and type.
    pub types: Vec<(String, String)>,
    pub reducers: Vec<ReducerLine>,
    /// A loss, and the factor before its sum over the tokens of one rank.
    pub factors: Vec<(String, String)>,
    /// Conditions and their values.
    pub when: Vec<String>,
}

pub(super) fn scales(project: &Project, files: &Files, output: &Output) -> Vec<ScaleLine> {
    let rows = output.factors.rows.iter().filter(|row| files[row.place.file].reported);
    let mut lines: Vec<ScaleLine> = rows
        .map(|row| ScaleLine {
            path: files[row.place.file].path.clone(),
            line: files[row.place.file].position(row.place.span.start).line,
            function: project.func(row.func).qualname.to_string(),
            variable: row.variable.to_string(),
            factor: row.factor.to_string(),
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

pub(super) fn gradients(project: &Project, files: &Files, output: &Output) -> Vec<GradientLine> {
    let names = |set: &AxisSet| set.iter().map(|a| a.name().to_string()).collect::<Vec<_>>();
    let mut lines = Vec::new();
    for row in output.factors.gradients.iter().filter(|row| files[row.place.file].reported) {
        let reducers = row.reducers.iter().filter_map(|(what, place)| {
            let (kind, axes) = match what {
                What::Summed(axes) => ("sum", axes),
                What::Averaged(axes) => ("mean", axes),
                What::Wrapped(axes) => ("wrapper", axes),
                _ => return None,
            };
            let line = files[place.file].position(place.span.start).line;
            Some(ReducerLine { kind, axes: names(axes), path: files[place.file].path.clone(), line })
        });
        lines.push(GradientLine {
            path: files[row.place.file].path.clone(),
            line: files[row.place.file].position(row.place.span.start).line,
            function: project.func(row.func).qualname.to_string(),
            parameters: row.parameters.split('@').next().unwrap_or_default().to_string(),
            types: row.types.iter().map(|(axis, letter)| (axis.to_string(), (*letter).to_string())).collect(),
            reducers: reducers.collect(),
            factors: row.factors.iter().map(|(loss, factor)| (loss.to_string(), factor.to_string())).collect(),
            when: row.when.iter().map(|(name, value)| format!("`{name}` is {value}")).collect(),
        });
    }
    lines.sort();
    lines.dedup();
    lines
}
