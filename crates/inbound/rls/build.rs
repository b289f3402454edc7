//! Compiles the messages of the rate limit service, without protoc.

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its folder this way")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const ROOT: &str = "proto";
    const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

    println!("cargo::rerun-if-changed={ROOT}");
    let mut compiler = protox::Compiler::new([ROOT])?;
    compiler.include_imports(true).open_file(SERVICE)?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    // For reflection.
    std::fs::write(
        std::path::Path::new(&out).join("rls.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
