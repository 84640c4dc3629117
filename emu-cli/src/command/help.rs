//! The end of the help text: the forms of values, exit codes and examples.

/// The text at the end of `warpwright emu --help`.
pub(crate) const HELP: &str = "\
Arguments (--arg NAME=VALUE, where NAME is the name of a parameter or its number, from 0):
  in:TYPE:COUNT[=FILL]     a buffer that the kernel may only read [FILL: rand]
  inout:TYPE:COUNT[=FILL]  a buffer that it reads and writes [FILL: rand]
  out:TYPE:COUNT           a buffer that is uninitialized before the launch
  file:FILE.npy            an in buffer with the array of a NumPy file; also inout:file:FILE.npy
  tex2d:FORMAT:WxH[:OPTION..][=FILL]  a texture, also 1d, 3d, 1dlayered, 2dlayered, cube, cubelayered and, for
                           linear memory, 1dfetch; OPTION is linear, wrap, mirror, border, normalized or float
  surf2d:FORMAT:WxH[=FILL] a surface, of the same kinds; without FILL it is uninitialized before the launch
  TYPE:VALUE               a number
  @BUFFER[+BYTES]          the address of another buffer
  struct:MEMBER,MEMBER..   a structure of numbers and addresses, as C lays it out
TYPE is u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64; COUNT is a number or a product such as 10x100.
FORMAT is a type of up to 32 bits for each channel of a texel, with x2 or x4 for several: u8x4.
FILL is zeros, iota, const:VALUE, rand, rand:LOW:HIGH, file:FILE.npy or VALUE,VALUE..; rand alone stands for
floats from -1 to 1 and integers from 0 to 99, by --data-seed.

Exit codes: 0 no findings; 1 findings; 2 the file or the arguments cannot be used.

Examples:
  warpwright emu saxpy.ptx
  warpwright emu saxpy.ptx -k saxpy --grid 4 --block 256 --arg 0=s32:1000 --arg 1=f32:2 \\
      --arg 2=in:f32:1000 --arg 3=inout:f32:1000 --race --schedules 32
  warpwright emu exec -- python saxpy.py";
