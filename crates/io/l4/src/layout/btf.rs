//! Types as the compiled programs have them, by their type information (BTF): what tests hold the writers of bytes
//! against, field by field.

use std::collections::{BTreeMap, BTreeSet};

/// Every structure of an object, by name.
pub(crate) struct Btf(BTreeMap<String, Struct>);

/// One: its size, and its fields' places and sizes.
struct Struct {
    bytes: usize,
    fields: BTreeMap<String, (usize, usize)>,
}

/// A type's record: its kind, what follows from it, and the words after it.
struct Record {
    name: usize,
    kind: u32,
    size_or_type: u32,
    has_bitfields: bool,
    words: Vec<u32>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn long(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight")) as usize
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two")))
}

fn text(bytes: &[u8], at: usize) -> String {
    let name = bytes[at..].split(|byte| *byte == 0).next().expect("a name");
    String::from_utf8_lossy(name).into_owned()
}

/// A section of an ELF file of 64 bits.
fn section<'a>(elf: &'a [u8], name: &str) -> &'a [u8] {
    let (headers, size, count) = (long(elf, 0x28), short(elf, 0x3a), short(elf, 0x3c));
    let header = |n: usize| &elf[headers + n * size..headers + (n + 1) * size];
    let body = |header: &[u8]| {
        let at = long(header, 0x18);
        at..at + long(header, 0x20)
    };
    let names = &elf[body(header(short(elf, 0x3e)))];
    let found = (0..count).map(header).find(|one| text(names, word(one, 0) as usize) == name);
    &elf[body(found.expect("a section"))]
}

fn records(types: &[u8]) -> Vec<Record> {
    // Type 0 is void.
    let void = Record { name: 0, kind: 0, size_or_type: 0, has_bitfields: false, words: vec![] };
    let (mut records, mut at) = (vec![void], 0);
    while at < types.len() {
        let info = word(types, at + 4);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        let words = match kind {
            1 | 14 | 17 => 1,
            3 => 3,
            4 | 5 | 15 | 19 => 3 * count,
            6 | 13 => 2 * count,
            _ => 0,
        };
        records.push(Record {
            name: word(types, at) as usize,
            kind,
            size_or_type: word(types, at + 8),
            has_bitfields: info >> 31 == 1,
            words: (0..words).map(|n| word(types, at + 12 + 4 * n)).collect(),
        });
        at += 12 + 4 * words;
    }
    records
}

fn size_of(records: &[Record], id: u32) -> usize {
    let record = &records[id as usize];
    match record.kind {
        1 | 4 | 5 | 6 | 19 => record.size_or_type as usize,
        2 => 8,
        3 => size_of(records, record.words[0]) * record.words[2] as usize,
        8..=11 | 18 => size_of(records, record.size_or_type),
        kind => panic!("kind {kind} has no size"),
    }
}

impl Btf {
    /// Of a compiled object.
    pub(crate) fn of(elf: &[u8]) -> Btf {
        let btf = section(elf, ".BTF");
        let header = word(btf, 4) as usize;
        let part = |at: usize| {
            let begin = header + word(btf, at) as usize;
            &btf[begin..begin + word(btf, at + 4) as usize]
        };
        let (types, names) = (part(8), part(16));
        let records = records(types);
        let mut structs = BTreeMap::new();
        for one in records.iter().filter(|one| one.kind == 4) {
            let fields = one.words.as_chunks().0.iter().map(|[name, of, bits]| {
                let bits = if one.has_bitfields { bits & 0xff_ffff } else { *bits };
                let place = (bits as usize / 8, size_of(&records, *of));
                (text(names, *name as usize), place)
            });
            let whole = Struct { bytes: one.size_or_type as usize, fields: fields.collect() };
            structs.insert(text(names, one.name), whole);
        }
        Btf(structs)
    }

    /// Bytes that a value was written as have every field of the structure, with what it should hold, where the
    /// compiled program has it; what is not named is padding.
    pub(crate) fn has(&self, name: &str, written: &[u8], fields: &[(&str, &[u8])]) {
        let it = self.0.get(name).unwrap_or_else(|| panic!("no struct {name} in the object"));
        assert_eq!(written.len(), it.bytes, "struct {name}");
        for (field, holds) in fields {
            let found = it.fields.get(*field);
            let (at, size) = found.unwrap_or_else(|| panic!("no {name}.{field} in the object"));
            assert_eq!(holds.len(), *size, "{name}.{field}");
            assert_eq!(&written[*at..at + size], *holds, "{name}.{field}");
        }
        let named: BTreeSet<&str> = fields.iter().map(|(field, _)| *field).collect();
        let left = |field: &&String| !field.starts_with("pad") && !named.contains(field.as_str());
        let left: Vec<&String> = it.fields.keys().filter(left).collect();
        assert!(left.is_empty(), "struct {name}: {left:?} are not written");
    }
}
