//! The mesh, the tensor and the machine of a question. In: text such as `dp=2,tp=4`, `16,16`, `bf16`. Out: [`Mesh`],
//! shapes, [`Dtype`], [`Machine`]. Never: placements. Next: `placement.rs`.

/// More mesh dims than this have not been seen, and the graph search would not end.
const MOST_MESH_DIMS: usize = 16;
/// PyTorch's own limit on the dims of most operations.
const MOST_TENSOR_DIMS: usize = 64;

/// A device mesh: how many ranks each of its dims has, and what the dims are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Ranks of each mesh dim, outer first; at least 1.
    pub sizes: Vec<u64>,
    /// One for each dim, or none at all.
    pub names: Vec<String>,
}

impl Mesh {
    /// Reads `dp=2,tp=4` or `2,4`, with or without brackets.
    pub fn parse(text: &str) -> Result<Mesh, String> {
        let mut mesh = Mesh { sizes: Vec::new(), names: Vec::new() };
        for part in entries(text) {
            let (name, size) = match part.split_once('=') {
                Some((name, size)) => (Some(name.trim()), size.trim()),
                None => (None, part),
            };
            if let Some(name) = name {
                if name.is_empty() {
                    return Err(format!("the mesh dim `{part}` has no name before its `=`"));
                }
                if mesh.names.iter().any(|other| other == name) {
                    return Err(format!("two mesh dims are called `{name}`"));
                }
                mesh.names.push(name.to_owned());
            }
            let size: u64 = size.parse().map_err(|_| format!("`{size}` is not the size of a mesh dim"))?;
            mesh.sizes.push(size);
        }
        if !mesh.names.is_empty() && mesh.names.len() != mesh.sizes.len() {
            return Err("either all mesh dims have a name or none".to_owned());
        }
        mesh.checked()
    }

    /// A mesh without names.
    pub fn of_sizes(sizes: Vec<u64>) -> Result<Mesh, String> {
        Mesh { sizes, names: Vec::new() }.checked()
    }

    fn checked(self) -> Result<Mesh, String> {
        if self.sizes.is_empty() {
            return Err("the mesh has no dims; write it as `dp=2,tp=4` or `2,4`".to_owned());
        }
        if self.sizes.contains(&0) {
            return Err("a mesh dim has size 0".to_owned());
        }
        if self.sizes.len() > MOST_MESH_DIMS {
            return Err(format!("the mesh has {} dims, more than {MOST_MESH_DIMS}", self.sizes.len()));
        }
        if self.sizes.iter().try_fold(1u64, |all, size| all.checked_mul(*size)).is_none_or(|all| all > 1 << 31) {
            return Err("the mesh has more ranks than can be".to_owned());
        }
        Ok(self)
    }

    pub fn ndim(&self) -> usize {
        self.sizes.len()
    }

    /// The name of a mesh dim, or its number.
    pub fn name(&self, dim: usize) -> String {
        self.names.get(dim).cloned().unwrap_or_else(|| dim.to_string())
    }

    /// Ranks of one mesh dim.
    pub fn size(&self, dim: usize) -> u64 {
        self.sizes.get(dim).copied().unwrap_or(1)
    }

    /// `dp=2, tp=4`, or `2, 4` without names.
    pub fn describe(&self) -> String {
        let words: Vec<String> = (0..self.ndim())
            .map(|dim| match self.names.get(dim) {
                Some(name) => format!("{name}={}", self.size(dim)),
                None => self.size(dim).to_string(),
            })
            .collect();
        words.join(", ")
    }
}

/// The global shape of a tensor, one size for each dim: `16,16`; nothing, or `[]`, is a scalar.
pub fn parse_shape(text: &str) -> Result<Vec<u64>, String> {
    let sizes: Result<Vec<u64>, String> = entries(text)
        .into_iter()
        .map(|part| part.parse().map_err(|_| format!("`{part}` is not the size of a tensor dim")))
        .collect();
    check_shape(sizes?)
}

/// A shape that a tensor can have.
pub fn check_shape(shape: Vec<u64>) -> Result<Vec<u64>, String> {
    if shape.len() > MOST_TENSOR_DIMS {
        return Err(format!("the shape has {} dims, more than {MOST_TENSOR_DIMS}", shape.len()));
    }
    let elements = shape.iter().filter(|size| **size > 0).try_fold(1u64, |all, size| all.checked_mul(*size));
    if elements.is_none_or(|elements| elements > 1 << 58) {
        return Err("the shape has more elements than a tensor can have".to_owned());
    }
    Ok(shape)
}

/// The parts between commas, inside brackets if there are any. A comma at the end is allowed, as in a Python tuple.
fn entries(text: &str) -> Vec<&str> {
    let text = unbracketed(text);
    let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

/// Without the one pair of brackets around a list.
pub(super) fn unbracketed(text: &str) -> &str {
    let text = text.trim();
    let inside = |open, close| text.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    inside('[', ']').or_else(|| inside('(', ')')).unwrap_or(text).trim()
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// The run time's short word: `bf16`.
    pub name: &'static str,
    /// Bytes of one element.
    pub bytes: u64,
    /// A tensor of it can have a gradient.
    pub differentiable: bool,
}

/// Short word, long words, bytes of an element, has gradients. Source: torch 2.15, `torch/utils/_dtype_abbrs.py`.
const DTYPES: [(&str, &[&str], u64, bool); 16] = [
    ("f32", &["float32", "float", "fp32"], 4, true),
    ("bf16", &["bfloat16"], 2, true),
    ("f16", &["float16", "half", "fp16"], 2, true),
    ("f64", &["float64", "double", "fp64"], 8, true),
    ("f8e4m3fn", &["float8_e4m3fn"], 1, true),
    ("f8e5m2", &["float8_e5m2"], 1, true),
    ("f8e4m3fnuz", &["float8_e4m3fnuz"], 1, true),
    ("f8e5m2fnuz", &["float8_e5m2fnuz"], 1, true),
    ("c64", &["complex64", "cfloat"], 8, true),
    ("c128", &["complex128", "cdouble"], 16, true),
    ("i8", &["int8"], 1, false),
    ("u8", &["uint8"], 1, false),
    ("i16", &["int16", "short"], 2, false),
    ("i32", &["int32", "int"], 4, false),
    ("i64", &["int64", "long"], 8, false),
    ("b8", &["bool"], 1, false),
];

impl Dtype {
    /// Reads `bf16`, `bfloat16` or `torch.bfloat16`.
    pub fn parse(text: &str) -> Result<Dtype, String> {
        let word = text.trim().trim_start_matches("torch.");
        let row = DTYPES.iter().find(|(short, long, ..)| *short == word || long.contains(&word));
        match row {
            Some(&(name, _, bytes, differentiable)) => Ok(Dtype { name, bytes, differentiable }),
            None => Err(format!("`{text}` is not a dtype; some are f32, bf16, f16, f64, i64, bool")),
        }
    }
}

/// What the ranks run on. It decides how `S(i) -> S(j)` is done, and it weighs the edges of the graph search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub device: Device,
    /// Devices of one host: a mesh dim that needs more is slow.
    pub per_host: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Gloo has no all-to-all: `shard_dim_alltoall` gathers and cuts.
    Cpu,
    Cuda,
}

impl Machine {
    /// `torch.cpu.device_count()` is 1; a host has eight GPUs unless the user says otherwise.
    pub fn new(device: Device, per_host: Option<u64>) -> Machine {
        let usual = match device {
            Device::Cpu => 1,
            Device::Cuda => 8,
        };
        Machine { device, per_host: per_host.unwrap_or(usual) }
    }
}
