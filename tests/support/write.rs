//! A GGUF writer for tests, which writes lies as readily as truths.

/// A file to be.
#[derive(Clone, Default)]
pub(crate) struct File {
    pub(crate) pairs: Vec<(String, Val)>,
    pub(crate) tensors: Vec<Entry>,
}

/// A metadata value.
#[derive(Clone)]
pub(crate) enum Val {
    U32(u32),
    F32(f32),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    I32s(Vec<i32>),
    /// A type number and whatever follows it.
    Raw(u32, Vec<u8>),
}

/// A tensor; its data follows that of the tensor before, unless `offset` says otherwise.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) offset: Option<u64>,
}

impl File {
    pub(crate) fn pair(mut self, key: &str, value: Val) -> File {
        self.pairs.retain(|(k, _)| k != key);
        self.pairs.push((key.to_owned(), value));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> File {
        self.pairs.retain(|(k, _)| k != name);
        self.tensors.retain(|t| t.name != name);
        self
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, data: Vec<u8>) -> File {
        self.tensors.push(Entry {
            name: name.to_owned(),
            dims: dims.to_vec(),
            kind,
            data,
            offset: None,
        });
        self
    }

    pub(crate) fn edit(mut self, name: &str, edit: impl FnOnce(&mut Entry)) -> File {
        edit(
            self.tensors
                .iter_mut()
                .find(|t| t.name == name)
                .expect("a tensor of that name"),
        );
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            string(&mut out, key);
            value.write(&mut out);
        }

        let mut next = 0;
        for t in &self.tensors {
            string(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            for n in &t.dims {
                out.extend(n.to_le_bytes());
            }
            out.extend(t.kind.to_le_bytes());
            out.extend(t.offset.unwrap_or(next).to_le_bytes());
            next = (next + t.data.len() as u64).next_multiple_of(32);
        }

        for t in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&t.data);
        }

        out
    }
}

impl Val {
    fn write(&self, out: &mut Vec<u8>) {
        let id: u32 = match self {
            Val::U32(_) => 4,
            Val::F32(_) => 6,
            Val::Bool(_) => 7,
            Val::Str(_) => 8,
            Val::Strs(_) | Val::I32s(_) => 9,
            Val::Raw(id, _) => *id,
        };
        out.extend(id.to_le_bytes());
        match self {
            Val::U32(n) => out.extend(n.to_le_bytes()),
            Val::F32(x) => out.extend(x.to_le_bytes()),
            Val::Bool(b) => out.push(u8::from(*b)),
            Val::Str(s) => string(out, s),
            Val::Strs(all) => {
                array(out, 8, all.len());
                for s in all {
                    string(out, s);
                }
            }
            Val::I32s(all) => {
                array(out, 5, all.len());
                for n in all {
                    out.extend(n.to_le_bytes());
                }
            }
            Val::Raw(_, bytes) => out.extend(bytes),
        }
    }
}

fn array(out: &mut Vec<u8>, id: u32, len: usize) {
    out.extend(id.to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Little-endian bytes of f32 numbers.
pub(crate) fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}
