//! Gives the library the name by which programs know the driver.

fn main() {
    // A stream's thread may outlive the last handle of the library, so the library is never unloaded.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1,-z,nodelete");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
