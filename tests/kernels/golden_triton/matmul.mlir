module {
  tt.func public @matmul(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg2: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 16 : i32
    %c2 = arith.constant 64 : i32
    %c3 = arith.constant 32 : i32
    %c4 = arith.constant dense<0.000000e+00> : tensor<16x32xf32>
    %c6 = arith.constant 2 : i32
    %c7 = arith.constant dense<64> : tensor<16xi32>
    %c8 = arith.constant dense<40> : tensor<16xi32>
    %c9 = arith.constant dense<64> : tensor<32xi32>
    %c10 = arith.constant 1 : i32
    %1 = tt.get_program_id x : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c1 : i32
    %4 = arith.muli %3, %c2 : i32
    %5 = arith.muli %1, %c3 : i32
    %6 = arith.addi %4, %5 : i32
    %7 = tt.addptr %arg2, %6 : !tt.ptr<f32>, i32
    %54 = scf.for %13 = %c0 to %c6 step %c10 iter_args(%14 = %c4) -> (tensor<16x32xf32>) : i32 {
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
      %26 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %27 = arith.muli %25, %c7 : tensor<16xi32>
      %28 = tt.expand_dims %27 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %29 = tt.splat %15 : i32 -> tensor<16xi32>
      %30 = arith.addi %29, %25 : tensor<16xi32>
      %31 = arith.cmpi slt, %30, %c8 : tensor<16xi32>
      %32 = tt.expand_dims %31 {axis = 1 : i32} : tensor<16xi1> -> tensor<16x1xi1>
      %33 = tt.broadcast %32 : tensor<16x1xi1> -> tensor<16x32xi1>
      %34 = tt.expand_dims %26 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %35 = tt.broadcast %28 : tensor<16x1xi32> -> tensor<16x32xi32>
      %36 = tt.broadcast %34 : tensor<1x32xi32> -> tensor<16x32xi32>
      %37 = arith.addi %35, %36 : tensor<16x32xi32>
      %38 = tt.splat %19 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
      %39 = tt.addptr %38, %37 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
      %40 = tt.load %39, %33, %c4 : tensor<16x32x!tt.ptr<f32>>
      %41 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %42 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %43 = arith.muli %41, %c9 : tensor<32xi32>
      %44 = tt.expand_dims %43 {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
      %45 = tt.expand_dims %42 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %46 = tt.broadcast %44 : tensor<32x1xi32> -> tensor<32x32xi32>
      %47 = tt.broadcast %45 : tensor<1x32xi32> -> tensor<32x32xi32>
      %48 = arith.addi %46, %47 : tensor<32x32xi32>
      %49 = tt.splat %24 : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
      %50 = tt.addptr %49, %48 : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
      %51 = tt.load %50 : tensor<32x32x!tt.ptr<f32>>
      %52 = tt.dot %40, %51, %c4, inputPrecision = tf32 : tensor<16x32xf32> * tensor<32x32xf32> -> tensor<16x32xf32>
      %53 = arith.addf %14, %52 : tensor<16x32xf32>
      scf.yield %53 : tensor<16x32xf32>
    }
    %62 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %63 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %64 = arith.muli %62, %c7 : tensor<16xi32>
    %65 = tt.expand_dims %64 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %66 = tt.splat %3 : i32 -> tensor<16xi32>
    %67 = arith.addi %66, %62 : tensor<16xi32>
    %68 = arith.cmpi slt, %67, %c8 : tensor<16xi32>
    %69 = tt.expand_dims %68 {axis = 1 : i32} : tensor<16xi1> -> tensor<16x1xi1>
    %70 = tt.broadcast %69 : tensor<16x1xi1> -> tensor<16x32xi1>
    %71 = tt.expand_dims %63 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %72 = tt.broadcast %65 : tensor<16x1xi32> -> tensor<16x32xi32>
    %73 = tt.broadcast %71 : tensor<1x32xi32> -> tensor<16x32xi32>
    %74 = arith.addi %72, %73 : tensor<16x32xi32>
    %75 = tt.splat %7 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
    %76 = tt.addptr %75, %74 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
    tt.store %76, %54, %70 : tensor<16x32x!tt.ptr<f32>>
    tt.return
  }
}
