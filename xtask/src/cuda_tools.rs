//! Finds ptxas on this machine, or installs a pinned release from PyPI.
//!
//! pip downloads the wheel and checks its hash, and the wheel is unpacked under the target folder.
//! Do not commit it, because its license forbids redistribution.

use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::paths;

/// The release that is downloaded, and from which the figures in `kernels/ptxas.tsv` come.
pub(crate) const VERSION: &str = "13.5.37";

/// The supported machines and the SHA-256 hash of the `nvidia-cuda-nvcc` wheel for each.
const WHEELS: [(&str, &str, &str); 2] = [
    (
        "linux",
        "x86_64",
        "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
    ),
    (
        "linux",
        "aarch64",
        "588eda18eb5076ae859fe272844b526459228af22df0b117f54eec3aa82bc9c8",
    ),
];

/// Returns the path of ptxas, and downloads it if this machine has none.
///
/// The variable `PTXAS` comes first, then an earlier download, then `CUDA_PATH`, `CUDA_HOME` and
/// `PATH`. An earlier download precedes installed tools because the kept figures come from it.
pub(crate) fn ptxas() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("PTXAS") {
        let path = PathBuf::from(path);
        ensure!(
            path.is_file(),
            "PTXAS is {}, which is not a file",
            path.display()
        );
        return Ok(path);
    }

    let fetched = bin().join("ptxas");
    if fetched.is_file() {
        return Ok(fetched);
    }
    if let Some(path) = installed("ptxas") {
        return Ok(path);
    }

    fetch()?;
    Ok(fetched)
}

/// Returns the release that `ptxas --version` prints, for example `13.5, V13.5.37`.
pub(crate) fn release(ptxas: &Path) -> Result<String> {
    let output = Command::new(ptxas)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let release = text
        .lines()
        .find_map(|line| line.split_once("release "))
        .map(|(_, release)| release.trim().to_owned());
    release.with_context(|| format!("{} --version does not name a release", ptxas.display()))
}

/// Returns the folder of the downloaded tools.
fn bin() -> PathBuf {
    paths::target().join("cuda-tools").join(VERSION).join("bin")
}

/// Finds a tool in `CUDA_PATH`, `CUDA_HOME` or `PATH`.
pub(crate) fn installed(tool: &str) -> Option<PathBuf> {
    let toolkits = ["CUDA_PATH", "CUDA_HOME"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(|dir| PathBuf::from(dir).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    toolkits
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
}

/// Downloads and installs the pinned ptxas.
fn fetch() -> Result<()> {
    let Some((_, _, hash)) = WHEELS
        .into_iter()
        .find(|&(os, arch, _)| os == OS && arch == ARCH)
    else {
        bail!("no ptxas is pinned for {OS} on {ARCH}: set PTXAS to an installed ptxas")
    };

    eprintln!("fetching ptxas {VERSION} from PyPI (47 MB, once)");
    let work = tempfile::tempdir()?;
    let wheel = download(work.path(), hash)?;
    unpack(&wheel, &work.path().join("unpacked"))?;
    install(&work.path().join("unpacked/nvidia/cu13/bin/ptxas"))
}

/// Downloads the wheel with this hash to a folder, and returns its path.
fn download(to: &Path, hash: &str) -> Result<PathBuf> {
    // pip accepts hashes only from a file of requirements.
    let requirements = to.join("requirements.txt");
    fs::write(
        &requirements,
        format!("nvidia-cuda-nvcc=={VERSION} --hash=sha256:{hash}\n"),
    )?;
    let mut pip: Vec<OsString> = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    .map(OsString::from)
    .into();
    pip.extend(["-d".into(), to.into(), "-r".into(), requirements.into()]);
    python(&pip).context(
        "cannot fetch ptxas from PyPI: run again with a network, or set PTXAS to an installed ptxas",
    )?;
    let wheel = fs::read_dir(to)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    wheel.context("pip fetched no wheel")
}

/// Unpacks a wheel, which is a ZIP archive.
fn unpack(wheel: &Path, to: &Path) -> Result<()> {
    let arguments = [
        "-m".into(),
        "zipfile".into(),
        "-e".into(),
        wheel.into(),
        to.into(),
    ];
    python(&arguments).with_context(|| format!("cannot unpack {}", wheel.display()))
}

/// Copies the unpacked ptxas to its place.
///
/// The last step is a rename, so that an interrupted run does not leave a partial file there.
fn install(unpacked: &Path) -> Result<()> {
    fs::create_dir_all(bin())?;
    let part = bin().join(format!("ptxas.{}", std::process::id()));
    fs::copy(unpacked, &part)
        .with_context(|| format!("the wheel does not contain {}", unpacked.display()))?;
    make_executable(&part)?;
    fs::rename(part, bin().join("ptxas"))?;
    Ok(())
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(
        file,
        fs::Permissions::from_mode(0o755),
    )?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

/// Runs Python, and returns an error with its last line of output if it fails.
fn python(arguments: &[OsString]) -> Result<()> {
    let output = Command::new("python3")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run python3")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("nothing")
        .trim();
    ensure!(
        output.status.success(),
        "{} said: {last}",
        arguments[1].display()
    );
    Ok(())
}
