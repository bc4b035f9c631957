//! Words of factors that gradients carry. In: a [`Mistake`]. Out: a draft that says the factor, and where each part of it comes from.
//! Never: detection. Next: `practice_scales.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::scale::value::{Event, What};
use crate::infer::scale::verdict::{Mistake, Wrong};
use crate::source::{Files, Label, Place};
use crate::types::{AxisSet, Factor, Monomial};

/// Labels beside the first one.
const MOST_LABELS: usize = 6;

pub fn factor(files: &Files, mistake: &Mistake) -> Draft {
    let (who, by) = (&mistake.who, multiplied(&mistake.factor));
    let mut draft = match &mistake.wrong {
        Wrong::Mean => {
            let what = sums(mistake);
            let title =
                format!("gradients of {} arrive {by} compared with the mean that the loss is{what}", named(who));
            Draft::new(&codes::GRADIENT_FACTOR, title)
        }
        Wrong::Than(than) => {
            let what = sums(mistake);
            let title = format!("gradients of {} arrive {by} compared with {}{what}", named(who), named(than));
            Draft::new(&codes::GRADIENT_FACTORS_DIFFER, title)
        }
        Wrong::NotSummed(missing) => return not_summed(mistake, missing),
        Wrong::MeanOfMeans | Wrong::OwnTokens => return mean_of_means(mistake),
        Wrong::Metric => {
            let title =
                format!("the value that is shown is {by} compared with the mean over all ranks{}", sums(mistake));
            Draft::new(&codes::METRIC_FACTOR, title)
        }
        Wrong::EachStage | Wrong::Copies => return received(mistake),
        Wrong::Divided => return divided(mistake),
    };
    let own = mistake.events.iter().find(|e| e.place == mistake.place);
    draft.primary = own.map_or("with this factor".to_string(), |e| says(&e.what));
    further(&mut draft, mistake);
    for call in mistake.events.iter().filter(|e| e.place == mistake.place).filter_map(|e| e.call) {
        if call != mistake.place && !draft.labels.iter().any(|l| l.place == call) {
            draft.labels.push(Label { place: call, message: "called here".to_string() });
        }
    }
    let repair = crate::types::Scale::Known(mistake.factor.clone()).inverse();
    if let Some(repair) = repair.known() {
        let help = superfluous(files, mistake, repair);
        draft.help.push(help.unwrap_or_else(|| format!("one more factor of {} puts it right", quoted(repair))));
    }
    draft
}

/// The division by the number of ranks that is one too many beside a mean over them; where it stands.
fn superfluous(files: &Files, mistake: &Mistake, repair: &Monomial) -> Option<String> {
    let judged = matches!(mistake.wrong, Wrong::Mean | Wrong::Metric);
    let is_size = *repair == repair.only(|f| matches!(f, Factor::Size(_)));
    if !judged || !is_size || repair.is_number() {
        return None;
    }
    let all = |axes: &AxisSet| repair.powers().all(|(f, _)| axes.iter().any(|a| *f == Factor::Size(a.clone())));
    let by = mistake.events.iter().find_map(|e| match &e.what {
        What::Wrapped(axes) if all(axes) => Some("wrapper"),
        What::Averaged(axes) if all(axes) => Some("reduction"),
        _ => None,
    })?;
    let mut divisions = mistake.events.iter().filter(|e| matches!(&e.what, What::Over(s) if s.known() == Some(repair)));
    let place = divisions.next().map(|e| e.place)?;
    if divisions.any(|e| e.place != place) {
        return None;
    }
    let file = &files[place.file];
    let of_file = if place.file == mistake.place.file { String::new() } else { format!(" of `{}`", file.path) };
    let line = file.position(place.span.start).line;
    Some(format!("remove the division by the number of ranks at line {line}{of_file}: the {by} averages already"))
}

fn not_summed(mistake: &Mistake, missing: &AxisSet) -> Draft {
    let title = format!(
        "gradients of {} are never summed over {}: its ranks have other tokens, which the loss counts",
        named(&mistake.who),
        axes(missing)
    );
    let mut draft = Draft::new(&codes::GRADIENT_NOT_SUMMED, title);
    draft.primary = format!("reduced over {}", axes(&mistake.summed));
    further(&mut draft, mistake);
    draft.help.push(format!("sum the gradients over {} as well", axes(missing)));
    draft
}

fn mean_of_means(mistake: &Mistake) -> Draft {
    let over = axes(&mistake.summed);
    let meant = match mistake.wrong {
        Wrong::OwnTokens => "is a mean over the tokens of all rounds",
        _ => "is declared as a mean over all tokens",
    };
    let title = format!("the loss {meant}, and is a mean over {over} of the ranks' own means");
    let mut draft = Draft::new(&codes::MEAN_OF_MEANS, title);
    draft.primary = "divided by the tokens of this rank".to_string();
    further(&mut draft, mistake);
    draft.help.push(format!("divide the sum by the number of tokens, summed over {over}"));
    draft
}

fn received(mistake: &Mistake) -> Draft {
    let title = match mistake.wrong {
        Wrong::Copies => {
            format!("copies of one gradient are added up: `{}` are equal, and each is complete", mistake.who)
        }
        _ => "the gradient is scaled once more on each stage: the stage that sent it has scaled it already".to_string(),
    };
    let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
    draft.primary = match mistake.wrong {
        Wrong::Copies => "multiplied by their number".to_string(),
        _ => "also where the gradient was received".to_string(),
    };
    further(&mut draft, mistake);
    draft.help.push(match mistake.wrong {
        Wrong::Copies => "take their mean, or any one of them".to_string(),
        _ => "scale it on the last stage alone".to_string(),
    });
    draft
}

fn divided(mistake: &Mistake) -> Draft {
    let by = quoted(&mistake.factor);
    let title = format!("the loss is divided by {by} twice: what takes its backward pass divides by it as well");
    let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
    draft.primary = format!("divided by {by}");
    further(&mut draft, mistake);
    draft.help.push(format!("leave out the division by {by} here"));
    draft
}

/// The other steps that tell where a factor comes from.
fn further(draft: &mut Draft, mistake: &Mistake) {
    let mut shown: Vec<Place> = vec![mistake.place];
    for Event { what, place, .. } in &mistake.events {
        if !shown.contains(place) && shown.len() <= MOST_LABELS {
            shown.push(*place);
            draft.labels.push(Label { place: *place, message: says(what) });
        }
    }
}

/// A name of which not all is shown, in bytes.
const LONG: usize = 40;

/// `all parameters`, or the name of a module in quotes; `module(..)` for a long call.
fn named(who: &str) -> String {
    match who.split_once(", ") {
        Some((module, rest)) => format!("{} ({rest})", named(module)),
        None if who.contains(' ') => who.to_string(),
        None => {
            let name = who.split('@').next().unwrap_or(who);
            // Of a long call its function says enough.
            match name.split_once('(').filter(|_| name.len() > LONG) {
                Some((called, _)) => format!("`{called}(..)`"),
                None => format!("`{name}`"),
            }
        }
    }
}

fn quoted(m: &Monomial) -> String {
    format!("`{m}`")
}

/// `multiplied by dp`, `divided by dp`.
fn multiplied(m: &Monomial) -> String {
    match m.powers().all(|(_, n)| n < 0) {
        true => {
            let inverse = crate::types::Scale::Known(m.clone()).inverse();
            format!("divided by {}", inverse.known().map_or_else(|| quoted(m), quoted))
        }
        false => format!("multiplied by {}", quoted(m)),
    }
}

fn axes(set: &AxisSet) -> String {
    let each: Vec<String> = set.iter().map(|a| format!("`{a}`")).collect();
    each.join(" and ")
}

/// What is done, in a few words: summed over which axes and divided by what.
fn sums(mistake: &Mistake) -> String {
    let divided: Vec<String> = mistake
        .events
        .iter()
        .filter_map(|e| match &e.what {
            What::Over(s) => Some(format!("divided by `{s}`")),
            What::Averaged(a) | What::Wrapped(a) => Some(format!("averaged over {}", axes(a))),
            What::Times(s) => Some(format!("multiplied by `{s}`")),
            _ => None,
        })
        .fold(Vec::new(), |mut all, one| {
            if !all.contains(&one) && all.len() < 4 {
                all.push(one);
            }
            all
        });
    let counts = mistake.factor.powers().any(|(f, _)| matches!(f, Factor::Count(_)));
    match (divided.is_empty(), counts) {
        (true, false) => format!(": summed over {}, and nothing divides by its size", axes(&mistake.summed)),
        _ if divided.is_empty() => String::new(),
        _ => format!(": {}", divided.join(", ")),
    }
}

fn says(what: &What) -> String {
    match what {
        What::Counted => "counts what this rank has".to_string(),
        What::AllCounted => "counts what all ranks have".to_string(),
        What::Mean => "the mean over the tokens of this rank".to_string(),
        What::Sum => "the sum over the tokens of this rank".to_string(),
        What::Times(s) => format!("multiplied by `{s}`"),
        What::Over(s) => format!("divided by `{s}`"),
        What::Summed(a) => format!("summed over {}", axes(a)),
        What::Averaged(a) => format!("averaged over {}", axes(a)),
        What::Wrapped(a) => format!("the wrapper averages over {}", axes(a)),
        What::Rounds(s) => format!("adds up over `{s}` rounds"),
        What::Received => "received from another rank".to_string(),
        What::Said => "says that each is complete".to_string(),
        What::Own(s) => format!("divides by `{s}` itself"),
        What::Given(s) => format!("told here that there are `{s}` rounds"),
        What::Backward => "gradients are taken here".to_string(),
    }
}
