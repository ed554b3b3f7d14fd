module {
  tt.func public @matmul(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg2: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 16 : i32
    %c2 = arith.constant 64 : i32
    %c3 = arith.constant 32 : i32
    %c4 = arith.constant dense<0.000000e+00> : tensor<16x32xf32>
    %c6 = arith.constant 2 : i32
    %c7 = arith.constant dense<64> : tensor<16x1xi32>
    %c8 = arith.constant dense<40> : tensor<16x1xi32>
    %c9 = arith.constant dense<64> : tensor<32x1xi32>
    %c10 = arith.constant 1 : i32
    %1 = tt.get_program_id x : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c1 : i32
    %4 = arith.muli %3, %c2 : i32
    %5 = arith.muli %1, %c3 : i32
    %6 = arith.addi %4, %5 : i32
    %7 = tt.addptr %arg2, %6 : !tt.ptr<f32>, i32
    %53 = scf.for %13 = %c0 to %c6 step %c10 iter_args(%14 = %c4) -> (tensor<16x32xf32>) : i32 {
      %15 = arith.muli %2, %c1 : i32
      %16 = arith.muli %15, %c2 : i32
      %17 = arith.muli %13, %c3 : i32
      %18 = arith.addi %16, %17 : i32
      %19 = tt.addptr %arg0, %18 : !tt.ptr<f32>, i32
      %20 = arith.muli %13, %c3 : i32
      %21 = arith.muli %20, %c2 : i32
      %22 = arith.muli %1, %c3 : i32
      %23 = arith.addi %21, %22 : i32
      %24 = tt.addptr %arg1, %23 : !tt.ptr<f32>, i32
      %25 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %26 = tt.expand_dims %25 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %27 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %28 = tt.expand_dims %27 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %29 = arith.muli %26, %c7 : tensor<16x1xi32>
      %30 = tt.splat %15 : i32 -> tensor<16x1xi32>
      %31 = arith.addi %30, %26 : tensor<16x1xi32>
      %32 = arith.cmpi slt, %31, %c8 : tensor<16x1xi32>
      %33 = tt.broadcast %32 : tensor<16x1xi1> -> tensor<16x32xi1>
      %34 = tt.broadcast %29 : tensor<16x1xi32> -> tensor<16x32xi32>
      %35 = tt.broadcast %28 : tensor<1x32xi32> -> tensor<16x32xi32>
      %36 = arith.addi %34, %35 : tensor<16x32xi32>
      %37 = tt.splat %19 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
      %38 = tt.addptr %37, %36 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
      %39 = tt.load %38, %33, %c4 : tensor<16x32x!tt.ptr<f32>>
      %40 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %41 = tt.expand_dims %40 {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
      %42 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %43 = tt.expand_dims %42 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %44 = arith.muli %41, %c9 : tensor<32x1xi32>
      %45 = tt.broadcast %44 : tensor<32x1xi32> -> tensor<32x32xi32>
      %46 = tt.broadcast %43 : tensor<1x32xi32> -> tensor<32x32xi32>
      %47 = arith.addi %45, %46 : tensor<32x32xi32>
      %48 = tt.splat %24 : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
      %49 = tt.addptr %48, %47 : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
      %50 = tt.load %49 : tensor<32x32x!tt.ptr<f32>>
      %51 = tt.dot %39, %50, %c4, inputPrecision = tf32 : tensor<16x32xf32> * tensor<32x32xf32> -> tensor<16x32xf32>
      %52 = arith.addf %14, %51 : tensor<16x32xf32>
      scf.yield %52 : tensor<16x32xf32>
    }
    %61 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %62 = tt.expand_dims %61 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %63 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %64 = tt.expand_dims %63 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %65 = arith.muli %62, %c7 : tensor<16x1xi32>
    %66 = tt.splat %3 : i32 -> tensor<16x1xi32>
    %67 = arith.addi %66, %62 : tensor<16x1xi32>
    %68 = arith.cmpi slt, %67, %c8 : tensor<16x1xi32>
    %69 = tt.broadcast %68 : tensor<16x1xi1> -> tensor<16x32xi1>
    %70 = tt.broadcast %65 : tensor<16x1xi32> -> tensor<16x32xi32>
    %71 = tt.broadcast %64 : tensor<1x32xi32> -> tensor<16x32xi32>
    %72 = arith.addi %70, %71 : tensor<16x32xi32>
    %73 = tt.splat %7 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
    %74 = tt.addptr %73, %72 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
    tt.store %74, %53, %69 : tensor<16x32x!tt.ptr<f32>>
    tt.return
  }
}
