module {
  tt.func public @matmul(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg2: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 16 : i32
    %c2 = arith.constant 64 : i32
    %c3 = arith.constant 32 : i32
    %c4 = arith.constant dense<0.0> : tensor<16x32xf32>
    %c6 = arith.constant 2 : i32
    %c7 = arith.constant 1 : i32
    %c8 = arith.constant dense<64> : tensor<16xi32>
    %c9 = arith.constant dense<40> : tensor<16xi32>
    %c10 = arith.constant dense<64> : tensor<32xi32>
    %1 = tt.get_program_id x : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c1 : i32
    %4 = arith.muli %3, %c2 : i32
    %5 = arith.muli %1, %c3 : i32
    %6 = arith.addi %4, %5 : i32
    %7 = tt.addptr %arg2, %6 : !tt.ptr<f32>, i32
    %15 = scf.for %13 = %c0 to %c6 step %c7 iter_args(%14 = %c4) -> (tensor<16x32xf32>) : i32 {
      %16 = arith.muli %2, %c1 : i32
      %17 = arith.muli %16, %c2 : i32
      %18 = arith.muli %13, %c3 : i32
      %19 = arith.addi %17, %18 : i32
      %20 = tt.addptr %arg0, %19 : !tt.ptr<f32>, i32
      %21 = arith.muli %13, %c3 : i32
      %22 = arith.muli %21, %c2 : i32
      %23 = arith.muli %1, %c3 : i32
      %24 = arith.addi %22, %23 : i32
      %25 = tt.addptr %arg1, %24 : !tt.ptr<f32>, i32
      %26 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
      %27 = arith.muli %26, %c8 : tensor<16xi32>
      %28 = tt.expand_dims %27 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
      %29 = tt.splat %16 : i32 -> tensor<16xi32>
      %30 = arith.addi %29, %26 : tensor<16xi32>
      %31 = arith.cmpi slt, %30, %c9 : tensor<16xi32>
      %32 = tt.expand_dims %31 {axis = 1 : i32} : tensor<16xi1> -> tensor<16x1xi1>
      %33 = tt.broadcast %32 : tensor<16x1xi1> -> tensor<16x32xi1>
      %34 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %35 = tt.expand_dims %34 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %36 = tt.broadcast %28 : tensor<16x1xi32> -> tensor<16x32xi32>
      %37 = tt.broadcast %35 : tensor<1x32xi32> -> tensor<16x32xi32>
      %38 = arith.addi %36, %37 : tensor<16x32xi32>
      %39 = tt.splat %20 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
      %40 = tt.addptr %39, %38 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
      %41 = tt.load %40, %33, %c4 : tensor<16x32x!tt.ptr<f32>>
      %42 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %43 = arith.muli %42, %c10 : tensor<32xi32>
      %44 = tt.expand_dims %43 {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
      %45 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %46 = tt.expand_dims %45 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %47 = tt.broadcast %44 : tensor<32x1xi32> -> tensor<32x32xi32>
      %48 = tt.broadcast %46 : tensor<1x32xi32> -> tensor<32x32xi32>
      %49 = arith.addi %47, %48 : tensor<32x32xi32>
      %50 = tt.splat %25 : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
      %51 = tt.addptr %50, %49 : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
      %52 = tt.load %51 : tensor<32x32x!tt.ptr<f32>>
      %53 = tt.dot %41, %52, %c4, inputPrecision = tf32 : tensor<16x32xf32> * tensor<32x32xf32> -> tensor<16x32xf32>
      %54 = arith.addf %14, %53 : tensor<16x32xf32>
      scf.yield %54 : tensor<16x32xf32>
    }
    %62 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %63 = arith.muli %62, %c8 : tensor<16xi32>
    %64 = tt.expand_dims %63 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %65 = tt.splat %3 : i32 -> tensor<16xi32>
    %66 = arith.addi %65, %62 : tensor<16xi32>
    %67 = arith.cmpi slt, %66, %c9 : tensor<16xi32>
    %68 = tt.expand_dims %67 {axis = 1 : i32} : tensor<16xi1> -> tensor<16x1xi1>
    %69 = tt.broadcast %68 : tensor<16x1xi1> -> tensor<16x32xi1>
    %70 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %71 = tt.expand_dims %70 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %72 = tt.broadcast %64 : tensor<16x1xi32> -> tensor<16x32xi32>
    %73 = tt.broadcast %71 : tensor<1x32xi32> -> tensor<16x32xi32>
    %74 = arith.addi %72, %73 : tensor<16x32xi32>
    %75 = tt.splat %7 : !tt.ptr<f32> -> tensor<16x32x!tt.ptr<f32>>
    %76 = tt.addptr %75, %74 : tensor<16x32x!tt.ptr<f32>>, tensor<16x32xi32>
    tt.store %76, %15, %69 : tensor<16x32x!tt.ptr<f32>>
    tt.return
  }
}
