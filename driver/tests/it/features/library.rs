//! Libraries.

use warpwright_driver::module::{Library, ListedKernel};
use warpwright_driver::prelude::*;
use warpwright_driver::sys::Api;

use super::{PTX, context, launch, set, text};
use crate::fake;

#[test]
fn a_kernel_of_a_library_is_a_function() {
    let context = context();
    let library = Library::load(context.driver(), PTX).unwrap();
    let module = library.in_context(&context).unwrap();
    assert_eq!(library.in_context(&context).unwrap().raw(), module.raw());
    let (stream, to) = (
        Stream::new(&context).unwrap(),
        Buffer::<u32>::zeroed(&context, 1).unwrap(),
    );
    launch(&stream, &set(&module), &to, 5).unwrap();
    let mut graph = Graph::new(&context).unwrap();
    let launched = Launch::new(
        &set(&module),
        LaunchConfig::line(1, 1),
        vec![(&*to).into(), HostArg::scalar(6u32)],
    );
    graph.add(&[], Work::from(launched.unwrap())).unwrap();

    // Whoever has a kernel of it keeps it.
    drop((library, module));
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    assert_eq!(stream.read(&to).unwrap(), [5]);
    exec.launch(&stream).unwrap();
    assert_eq!(stream.read(&to).unwrap(), [6]);
}

#[test]
fn a_library_lists_its_kernels() {
    let context = context();
    let library = Library::load(context.driver(), PTX).unwrap();
    let listed = |name: &str, parameters| ListedKernel {
        name: name.into(),
        parameters,
    };
    assert_eq!(
        library.kernels().unwrap(),
        [listed("set", None), listed("sharing", None)]
    );
    let _current = context.enter().unwrap();
    let known = [
        listed("set", Some(vec![(0, 8), (8, 4)])),
        listed("sharing", Some(vec![])),
    ];
    assert_eq!(library.kernels().unwrap(), known);
    assert_eq!(format!("{library:?}"), "Library([\"set\", \"sharing\"])");
}

#[test]
fn what_asked_for_shared_memory_is_known_to_every_function_of_a_kernel() {
    let context = context();
    let library = Library::load(context.driver(), PTX).unwrap();
    // SAFETY: the kernel has no parameters and touches nothing.
    let [one, other] =
        [(); 2].map(|()| unsafe { library.function(&context, "sharing", &[]) }.unwrap());
    assert_eq!(one.available_shared(1, 32).unwrap(), 32 << 10);
    one.blocks_per_sm(32, 100 << 10).unwrap();
    assert_eq!(other.available_shared(1, 32).unwrap(), 100 << 10);
}

#[test]
fn what_is_wrong_with_a_library_is_said() {
    let context = context();
    let driver = context.driver();
    let newer = PTX.replace(".version 7.0", ".version 9.9");
    assert_eq!(
        text(Library::load(driver, &newer)),
        "module: the PTX has version 9.9, which needs a driver for CUDA 13.9; this driver supports CUDA 13.5. Use a \
        newer driver or a lower .version [.version 9.9, .target sm_70; a library, driver for CUDA 13.5]"
    );
    let wrong = text(Library::load(
        driver,
        &PTX.replace("st.global.u32", "st.global.x32"),
    ));
    assert!(
        wrong.contains("x32") && wrong.contains("a library, driver for CUDA 13.5"),
        "{wrong}"
    );
    assert!(
        wrong.contains("\n  line 11: st.global.x32 [%a], %v;"),
        "{wrong}"
    );
    assert_eq!(wrong.matches("Ptx assembly aborted").count(), 1, "{wrong}");
    let library = Library::load(driver, PTX).unwrap();

    // SAFETY: there is no such kernel.
    let missing = text(unsafe { library.function(&context, "none", &[]) });
    assert!(
        missing.starts_with("module: no kernel none; the PTX defines set, sharing ["),
        "{missing}"
    );
}

#[test]
fn a_driver_without_libraries_says_so() {
    let api = Api {
        cuLibraryLoadData: None,
        ..fake::api()
    };
    let refused = Library::load(&Driver::from_library(fake::library(api)).unwrap(), PTX);
    let wanted = "module: cuLibraryLoadData needs CUDA 12.0, but this driver supports CUDA 12.4 [";
    assert!(text(refused).starts_with(wanted));
}
