module {
  tt.func public @softmax(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c1 = arith.constant 8 : i32
    %c2 = arith.constant 32 : i32
    %c3 = arith.constant dense<32> : tensor<8x1xi32>
    %1 = tt.get_program_id x : i32
    %2 = arith.muli %1, %c1 : i32
    %3 = arith.muli %2, %c2 : i32
    %4 = tt.addptr %arg0, %3 : !tt.ptr<f32>, i32
    %5 = arith.muli %1, %c1 : i32
    %6 = arith.muli %5, %c2 : i32
    %7 = tt.addptr %arg1, %6 : !tt.ptr<f32>, i32
    %8 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %9 = tt.expand_dims %8 {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
    %10 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %11 = tt.expand_dims %10 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %12 = arith.muli %9, %c3 : tensor<8x1xi32>
    %13 = tt.broadcast %12 : tensor<8x1xi32> -> tensor<8x32xi32>
    %14 = tt.broadcast %11 : tensor<1x32xi32> -> tensor<8x32xi32>
    %15 = arith.addi %13, %14 : tensor<8x32xi32>
    %16 = tt.splat %4 : !tt.ptr<f32> -> tensor<8x32x!tt.ptr<f32>>
    %17 = tt.addptr %16, %15 : tensor<8x32x!tt.ptr<f32>>, tensor<8x32xi32>
    %18 = tt.load %17 : tensor<8x32x!tt.ptr<f32>>
    %19 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %20 = tt.expand_dims %19 {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
    %21 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %22 = tt.expand_dims %21 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %23 = arith.muli %20, %c3 : tensor<8x1xi32>
    %24 = tt.broadcast %23 : tensor<8x1xi32> -> tensor<8x32xi32>
    %25 = tt.broadcast %22 : tensor<1x32xi32> -> tensor<8x32xi32>
    %26 = arith.addi %24, %25 : tensor<8x32xi32>
    %27 = tt.splat %4 : !tt.ptr<f32> -> tensor<8x32x!tt.ptr<f32>>
    %28 = tt.addptr %27, %26 : tensor<8x32x!tt.ptr<f32>>, tensor<8x32xi32>
    %29 = tt.load %28 : tensor<8x32x!tt.ptr<f32>>
    %33 = "tt.reduce"(%29) <{axis = 1 : i32}> ({
      ^bb0(%30: f32, %31: f32):
      %32 = arith.maximumf %30, %31 : f32
      tt.reduce.return %32 : f32
    }) : (tensor<8x32xf32>) -> (tensor<8xf32>)
    %34 = tt.expand_dims %33 {axis = 1 : i32} : tensor<8xf32> -> tensor<8x1xf32>
    %35 = tt.broadcast %34 : tensor<8x1xf32> -> tensor<8x32xf32>
    %36 = arith.subf %18, %35 : tensor<8x32xf32>
    %37 = math.exp %36 : tensor<8x32xf32>
    %41 = "tt.reduce"(%37) <{axis = 1 : i32}> ({
      ^bb0(%38: f32, %39: f32):
      %40 = arith.addf %38, %39 : f32
      tt.reduce.return %40 : f32
    }) : (tensor<8x32xf32>) -> (tensor<8xf32>)
    %42 = tt.expand_dims %41 {axis = 1 : i32} : tensor<8xf32> -> tensor<8x1xf32>
    %43 = tt.broadcast %42 : tensor<8x1xf32> -> tensor<8x32xf32>
    %44 = arith.divf %37, %43 : tensor<8x32xf32>
    %45 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %46 = tt.expand_dims %45 {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
    %47 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %48 = tt.expand_dims %47 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %49 = arith.muli %46, %c3 : tensor<8x1xi32>
    %50 = tt.broadcast %49 : tensor<8x1xi32> -> tensor<8x32xi32>
    %51 = tt.broadcast %48 : tensor<1x32xi32> -> tensor<8x32xi32>
    %52 = arith.addi %50, %51 : tensor<8x32xi32>
    %53 = tt.splat %7 : !tt.ptr<f32> -> tensor<8x32x!tt.ptr<f32>>
    %54 = tt.addptr %53, %52 : tensor<8x32x!tt.ptr<f32>>, tensor<8x32xi32>
    tt.store %54, %44 : tensor<8x32x!tt.ptr<f32>>
    tt.return
  }
}
