//! Generates the gRPC code from `proto/instance.proto`. protox is a compiler in Rust: no protoc has to be installed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/instance.proto");
    let descriptors = protox::compile(["instance.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds(descriptors)?;
    Ok(())
}
