//! Words of family 8xx: meshes of devices, partition specs, and how a program annotates. In: findings. Out: drafts.
//! Never: detection. Next: `mod.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::sharding::found::{Devices, Entry, Names, Sharding, Wrapper};
use crate::source::{Label, Name, Place};

/// The draft of a mistake.
pub fn sharding(mistake: &Sharding) -> Draft {
    match mistake {
        Sharding::Devices(devices) => mesh_devices(devices),
        Sharding::Names(names) => mesh_names(names),
        Sharding::Length { given, rank, made } => length(*given, *rank, *made),
        Sharding::Entry { entry, mesh } => spec_entry(entry, *mesh),
        Sharding::Twice { axis } => twice(axis),
        Sharding::Wrapper(wrapper) => wrapped(wrapper),
        Sharding::Unused { axis, size } => unused(axis, size),
        Sharding::Uneven { dim, size, parts, axes } => uneven(*dim, *size, *parts, axes),
        Sharding::Disagree { first, before, after } => disagree(*first, before, after),
        Sharding::Mode { tensor } => mode(*tensor),
        Sharding::Mixed { collective, annotated } => mixed(collective, *annotated),
        Sharding::Unbalanced => unbalanced(None),
        Sharding::NotManual { made } => unbalanced(Some(*made)),
        Sharding::ForwardOnly { differentiable, imported } => forward_only(differentiable, *imported),
    }
}

fn twice(axis: &str) -> Draft {
    let mut draft = Draft::new(&codes::AXIS_TWICE, format!("axis `{axis}` is used twice in one partition spec"));
    draft.primary = format!("`{axis}` occurs twice");
    draft.notes.push("a mesh axis splits at most one dim of a tensor".to_string());
    draft.help.push("write `None` for the dim that is whole".to_string());
    draft
}

fn unused(axis: &str, size: &str) -> Draft {
    let title = format!("no partition spec uses axis `{axis}` of size {size}");
    let mut draft = Draft::new(&codes::UNUSED_MESH_AXIS, title);
    draft.primary = format!("`{axis}` splits nothing");
    draft.notes.push(format!("every tensor is repeated on the {size} devices along `{axis}`"));
    draft.help.push("use the axis in a spec, or leave it out of the mesh".to_string());
    draft
}

fn disagree(first: Place, before: &str, after: &str) -> Draft {
    let title = format!("the tensor is annotated `{after}`, and was annotated `{before}`");
    let mut draft = Draft::new(&codes::CONFLICTING_ANNOTATIONS, title);
    draft.primary = format!("`{after}`");
    draft.labels.push(Label { place: first, message: format!("`{before}` before") });
    draft.notes.push("only one of them can hold; data that is already placed is moved".to_string());
    draft.help.push("keep one of the two, or call `clear_sharding` in between".to_string());
    draft
}

fn mixed(collective: &str, annotated: Place) -> Draft {
    let title = format!("`{collective}` of processes on a tensor that is annotated for all devices");
    let mut draft = Draft::new(&codes::PROCESS_COLLECTIVE, title);
    draft.primary = "communicates between processes".to_string();
    draft.labels.push(Label { place: annotated, message: "annotated here".to_string() });
    draft.notes.push(
        "an annotated tensor is one global tensor: the compiler adds the communication between its shards".to_string(),
    );
    draft.help.push("leave the collective out, or enter manual sharding for this part".to_string());
    draft
}

/// Entered and not left, or left for a tensor that was made whole.
fn unbalanced(made: Option<Place>) -> Draft {
    let title = match made {
        None => "manual sharding is entered and never left",
        Some(_) => "manual sharding is left for a tensor that never entered it",
    };
    let mut draft = Draft::new(&codes::UNBALANCED_MANUAL, title.to_string());
    draft.labels.extend(made.map(|place| Label { place, message: "made whole here".to_string() }));
    let (primary, help) = match made {
        None => ("what follows is one shard", "pass the result to `disable_manual_sharding` before the graph ends"),
        Some(_) => ("takes it for a shard", "pass what `enable_manual_sharding` returned"),
    };
    draft.primary = primary.to_string();
    draft.help.push(help.to_string());
    draft
}

fn forward_only(differentiable: &str, imported: Place) -> Draft {
    let title = "the gradient of this activation is not annotated: `mark_sharding` is about the forward only";
    let mut draft = Draft::new(&codes::FORWARD_ONLY, title.to_string());
    draft.primary = "the compiler chooses the sharding of its gradient".to_string();
    draft.labels.push(Label { place: imported, message: "imported and not used".to_string() });
    draft.help.push(format!("use `{differentiable}.apply(...)`, which annotates both"));
    draft
}

fn mesh_devices(devices: &Devices) -> Draft {
    let (title, primary) = match devices {
        Devices::Count { ids, devices } => (
            format!("a mesh of {ids} devices, and there are {devices}"),
            format!("{ids} device ids, {devices} devices"),
        ),
        Devices::Size { ids, size } => {
            (format!("the shape of the mesh has room for {size} devices, and it gets {ids}"), format!("{size} places"))
        }
        Devices::Twice { id } => (format!("device {id} is in the mesh twice"), "device ids are unique".to_string()),
        Devices::Beyond { id, size } => {
            (format!("device {id} is not one of the {size} devices of the mesh"), format!("ids are 0 to {}", size - 1))
        }
        Devices::Outer { inner, outer } => (
            format!("the inner mesh has {}, and the outer one {outer}", plural(*inner, "dim")),
            "both have the same dims".to_string(),
        ),
    };
    let mut draft = Draft::new(&codes::DEVICE_MESH, title);
    draft.primary = primary;
    let help = match devices {
        Devices::Outer { .. } => "give one size for each dim in both shapes, 1 where there is one",
        Devices::Twice { .. } | Devices::Beyond { .. } => "number the devices from 0: `np.arange(num_devices)`",
        _ => "the product of the shape is the number of all devices, and each is in the mesh once",
    };
    draft.help.push(help.to_string());
    draft
}

fn mesh_names(names: &Names) -> Draft {
    match names {
        Names::Count { names, dims } => {
            let (names, dims) = (plural(*names, "name"), plural(*dims, "dim"));
            let mut draft = Draft::new(&codes::MESH_AXIS_NAMES, format!("a mesh of {dims} gets {names} of axes"));
            draft.primary = format!("{names}, {dims}");
            draft.help.push("one name for each dim of the mesh".to_string());
            draft
        }
        Names::Twice { axis } => {
            let mut draft = Draft::new(&codes::MESH_AXIS_NAMES, format!("two axes of the mesh are called `{axis}`"));
            draft.primary = format!("`{axis}` occurs twice");
            draft.help.push("give each axis a name of its own".to_string());
            draft
        }
    }
}

fn length(given: usize, rank: usize, made: Option<Place>) -> Draft {
    let (entries, dims) = (entries(given), plural(rank, "dim"));
    let title = format!("a partition spec of {entries} for a tensor of {dims}");
    let mut draft = Draft::new(&codes::PARTITION_SPEC_LENGTH, title);
    draft.primary = format!("{entries}, {dims}");
    draft.labels.extend(made.map(|place| Label { place, message: format!("has {dims}") }));
    draft.help.push("one entry for each dim of the tensor: `None` for those that are whole".to_string());
    draft
}

fn spec_entry(entry: &Entry, mesh: Option<Place>) -> Draft {
    let (title, primary, help) = match entry {
        Entry::Unknown { axis, axes } => (
            format!("the mesh has no axis `{axis}`"),
            format!("the axes are {}", list(axes)),
            format!("use one of {}", list(axes)),
        ),
        Entry::Unnamed { axis } => (
            format!("the mesh has no axis `{axis}`: its axes have no names"),
            "made without names".to_string(),
            "give the mesh `axis_names`, or use the index of the axis".to_string(),
        ),
        Entry::Index { index, dims } if *index < 0 => (
            format!("index {index} of a mesh axis is below zero"),
            format!("{index} is no axis"),
            match dims {
                0 => "axes are numbered from 0".to_string(),
                _ => format!("axes are numbered from 0 to {}", dims - 1),
            },
        ),
        Entry::Index { index, dims } => (
            format!("the mesh has no axis {index}: it has {}", plural(*dims, "dim")),
            format!("{index} is beyond the last axis"),
            format!("axes are numbered from 0 to {}", dims.saturating_sub(1)),
        ),
        Entry::List => (
            "a partition spec is a tuple, and this is a list".to_string(),
            "a list has no hash".to_string(),
            "write it in round brackets".to_string(),
        ),
        Entry::Nested => (
            "a tuple of axes holds a tuple".to_string(),
            "two levels of tuples".to_string(),
            "write all axes of a dim in one tuple".to_string(),
        ),
        Entry::Type => (
            "an entry of a partition spec is no axis".to_string(),
            "not a name, an index, a tuple of them or `None`".to_string(),
            "use the name or the index of a mesh axis".to_string(),
        ),
    };
    let mut draft = Draft::new(&codes::PARTITION_SPEC_ENTRY, title);
    draft.primary = primary;
    draft.labels.extend(mesh.map(|place| Label { place, message: "the mesh".to_string() }));
    draft.help.push(help);
    draft
}

fn wrapped(wrapper: &Wrapper) -> Draft {
    match wrapper {
        Wrapper::Axis { axis, axes, mesh } => {
            let title = format!("the mesh of the wrapper has no axis `{axis}`");
            let mut draft = Draft::new(&codes::SHARDED_WRAPPER, title);
            draft.primary = match axes.as_slice() {
                [] => "its axes have no names".to_string(),
                axes => format!("the axes are {}", list(axes)),
            };
            draft.labels.extend(mesh.map(|place| Label { place, message: "the mesh".to_string() }));
            draft.help.push(format!("name the axis that parameters are split over `{axis}`"));
            draft
        }
        Wrapper::NoMesh => {
            let title = "the wrapper has no mesh, and none is set".to_string();
            let mut draft = Draft::new(&codes::SHARDED_WRAPPER, title);
            draft.primary = "no `mesh`".to_string();
            draft.help.push("pass `mesh=`, or call `set_global_mesh` before".to_string());
            draft
        }
        Wrapper::Again { first } => {
            let mut draft = Draft::new(&codes::SHARDED_WRAPPER, "the module is wrapped already".to_string());
            draft.primary = "wrapped again".to_string();
            draft.labels.push(Label { place: *first, message: "wrapped here".to_string() });
            draft.help.push("wrap inner modules first, and each module once".to_string());
            draft
        }
    }
}

fn uneven(dim: usize, size: i64, parts: i64, axes: &[Name]) -> Draft {
    let title = format!("dim {dim} of size {size} does not divide by {parts}, the devices along {}", list(axes));
    let mut draft = Draft::new(&codes::UNEVEN_SHARDING, title);
    draft.primary = format!("{size} into {parts} parts");
    draft.notes.push("shards are padded to one size: the last devices hold and compute what is no data".to_string());
    draft.help.push("use a size that divides, or another axis".to_string());
    draft
}

fn mode(tensor: Option<Place>) -> Draft {
    match tensor {
        Some(place) => {
            let title = "the mode for annotations is turned on after the first tensor is on a device".to_string();
            let mut draft = Draft::new(&codes::SHARDING_MODE, title);
            draft.primary = "turned on here".to_string();
            draft.labels.push(Label { place, message: "on a device already".to_string() });
            draft.notes.push("what is there is copied to every device once more".to_string());
            draft.help.push("call it at the beginning of the program".to_string());
            draft
        }
        None => {
            let title = "a sharding annotation, and nothing turns the mode for annotations on".to_string();
            let mut draft = Draft::new(&codes::SHARDING_MODE, title);
            draft.primary = "annotated here".to_string();
            draft.help.push("call `use_spmd()` at the beginning of the program".to_string());
            draft
        }
    }
}

fn list(names: &[Name]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

fn entries(n: usize) -> String {
    if n == 1 { "1 entry".to_string() } else { format!("{n} entries") }
}

fn plural(n: usize, word: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {word}{s}")
}
