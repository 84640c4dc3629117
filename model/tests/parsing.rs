//! Memory that reading a file takes, whatever it says. A process of its own, to measure it.

use std::fs;

use warpwright_model::gguf::Directory;

/// The most memory that the process has had since the last reset, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// Forgets the peak: see `clear_refs` in proc_pid_clear_refs(5).
fn forget() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn header(tensors: u64, pairs: u64) -> Vec<u8> {
    [
        &b"GGUF\x03\0\0\0"[..],
        &tensors.to_le_bytes(),
        &pairs.to_le_bytes(),
    ]
    .concat()
}

fn array(out: &mut Vec<u8>, name: &str, id: u32, len: u64, values: &[u8]) {
    out.extend((name.len() as u64).to_le_bytes());
    out.extend(name.as_bytes());
    out.extend(9u32.to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(values);
}

const LEN: usize = 64 << 20;

/// A file of one array, which is true but for its sense.
fn file(id: u32, len: u64, value: &[u8]) -> Vec<u8> {
    let mut file = header(0, 1);
    array(&mut file, "k", id, len, &value.repeat(len as usize));
    file
}

#[test]
fn a_directory_takes_no_more_than_its_file() {
    let empty_array = [&0u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
    let files = [
        ("bytes", file(0, LEN as u64, &[1])),
        ("bools", file(7, LEN as u64, &[1])),
        ("empty strings", file(8, LEN as u64 / 8, &[0; 8])),
        ("empty arrays", file(9, LEN as u64 / 12, &empty_array)),
        ("many small pairs", {
            let mut file = header(0, 1 << 16);
            (0..1 << 16).for_each(|i| array(&mut file, &format!("{i:x}"), 0, 1, &[0]));
            file
        }),
    ];
    for (name, file) in files {
        forget();
        let before = peak();
        let directory = Directory::read(&file).unwrap();
        let grown = peak() - before;
        let most = file.len() as u64 + (32 << 20);
        assert!(
            grown <= most,
            "{name}: {grown} bytes for a file of {}",
            file.len()
        );
        assert!(!directory.metadata.is_empty());
    }
}

#[test]
fn refuses_what_the_file_has_no_room_for() {
    let lie = |id: u32, len: u64| {
        let mut file = header(0, 1);
        array(&mut file, "k", id, len, &[0; 24]);
        Directory::read(&file).unwrap_err().to_string()
    };
    let no_room = |len: u64, most: u64| {
        format!("key \"k\" is an array of {len}, but the 24 bytes that follow hold at most {most}")
    };
    assert_eq!(lie(0, 25), no_room(25, 24));
    assert_eq!(lie(8, 4), no_room(4, 3));
    assert_eq!(lie(9, 3), no_room(3, 2));
    assert_eq!(lie(12, u64::MAX), no_room(u64::MAX, 3));
    let mut many = header(0, (1 << 16) + 1);
    many.resize(many.len() + (13 << 16) + 13, 0);
    assert_eq!(
        Directory::read(&many).unwrap_err().to_string(),
        "the header counts 65537 metadata pairs; at most 65536 are supported"
    );
}
